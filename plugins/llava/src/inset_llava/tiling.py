"""Any-resolution tiles of LLaVA-NeXT: which layout an image gets, how many tokens that makes, and how it is cut."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from inset.api import ImagePixels

__all__ = ["TileLayout", "count_tile_tokens", "cut_tiles", "lay_out_tiles", "select_best_resolution"]


class TileLayout(NamedTuple):
    """Where an image lies on its tiles.

    Attributes:
        height: Height of all tiles together, in pixels.
        width: Width of all tiles together.
        rows: Tiles above each other.
        columns: Tiles beside each other.
        resized: (height, width) of the image inside, in pixels.
    """

    height: int
    width: int
    rows: int
    columns: int
    resized: tuple[int, int]


def lay_out_tiles(size: tuple[int, int], pinpoints: Sequence[tuple[int, int]], edge: int) -> TileLayout:
    """Returns the layout for an image of (height, width).

    Source: transformers 5.24 ``get_patch_output_size``.
    """
    height, width = select_best_resolution(size, pinpoints)
    scale_width, scale_height = width / size[1], height / size[0]
    if scale_width < scale_height:
        resized = (min(math.ceil(size[0] * scale_width), height), width)
    else:
        resized = (height, min(math.ceil(size[1] * scale_height), width))
    return TileLayout(height, width, height // edge, width // edge, resized)


def select_best_resolution(size: tuple[int, int], pinpoints: Sequence[tuple[int, int]]) -> tuple[int, int]:
    """Returns the (height, width) among the pinpoints that keeps most of the image's pixels, and of those the one that wastes least.

    Source: transformers 5.24 ``select_best_resolution``.
    """

    def rank(pinpoint: tuple[int, int]) -> tuple[int, int]:
        height, width = pinpoint
        scale = min(width / size[1], height / size[0])
        effective = min(int(size[1] * scale) * int(size[0] * scale), size[0] * size[1])
        return effective, effective - height * width

    return max(pinpoints, key=rank)


def count_tile_tokens(size: tuple[int, int], layout: TileLayout, patches_per_tile: int) -> int:
    """Returns the tokens of the tiles: the patches that the image covers, and a newline behind each of their rows.

    Source: transformers 5.24 ``LlavaNextProcessor._get_unpadded_features``.

    Args:
        size: (height, width) of the image in pixels.
        layout: Its layout.
        patches_per_tile: Patches along one side of a tile.
    """
    height, width = size
    rows, columns = layout.rows * patches_per_tile, layout.columns * patches_per_tile
    if width / height > columns / rows:
        covered = int(round(height * (columns / width), 7))
        rows -= (rows - covered) // 2 * 2
    else:
        covered = int(round(width * (rows / height), 7))
        columns -= (columns - covered) // 2 * 2
    return rows * columns + rows


def cut_tiles(resized: ImagePixels, layout: TileLayout, *, out: ImagePixels) -> None:
    """Puts the resized image in the middle of the layout, black around it, and cuts it into tiles by rows.

    Source: transformers 5.24 ``LlavaNextImageProcessor._pad_for_patching``.

    Args:
        resized: ``(height, width, 3)`` uint8 of the size `TileLayout.resized`.
        layout: The layout.
        out: ``(rows * columns, edge, edge, 3)`` uint8; written here.
    """
    import numpy as np

    top, left = (layout.height - layout.resized[0]) // 2, (layout.width - layout.resized[1]) // 2
    canvas = np.zeros((layout.height, layout.width, 3), np.uint8)
    canvas[top : top + layout.resized[0], left : left + layout.resized[1]] = resized
    edge = layout.height // layout.rows
    tiles = canvas.reshape(layout.rows, edge, layout.columns, edge, 3).transpose(0, 2, 1, 3, 4)
    out.reshape(layout.rows, layout.columns, edge, edge, 3)[:] = tiles
