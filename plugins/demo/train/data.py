"""Reads the shards that `scenes.py` wrote, and turns them into batches with labels for every patch."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from scenes import COLOURS, GRID, KINDS, MAX_OBJECTS, Pixels, Shape

MEAN = (0.5, 0.5, 0.5)
STD = (0.25, 0.25, 0.25)
IGNORED = -100


@dataclass(frozen=True, slots=True)
class Picture:
    """One picture of the pool, perhaps mirrored.

    Attributes:
        pixels: uint8 (size, size, 3).
        shapes: The objects from left to right.
        patches: uint8 (GRID, GRID), as in `scenes.Scene`, numbered as `shapes`.
    """

    pixels: Pixels
    shapes: tuple[Shape, ...]
    patches: Pixels


class Pool:
    """All scenes of one split that have been drawn so far; `refresh` takes in new shards."""

    def __init__(self, folder: Path, split: str) -> None:
        self.folder, self.split = folder, split
        self._shards: list[tuple[Pixels, Pixels, NDArray[np.float32]]] = []
        self._size = 0
        self.refresh()

    def refresh(self) -> None:
        """Loads the shards that were finished since the last call."""
        paths = sorted(p for p in self.folder.glob(f"{self.split}-*.npz") if ".part" not in p.name)
        for path in paths[len(self._shards) :]:
            with np.load(path) as shard:
                self._shards.append((shard["pixels"], shard["patches"], shard["table"]))
                self._size += len(shard["table"])

    def __len__(self) -> int:
        return self._size

    def get(self, index: int, *, mirror_x: bool = False, mirror_y: bool = False) -> Picture:
        """Returns one picture, mirrored as asked, with its labels mirrored too."""
        per_shard = len(self._shards[0][2])
        pixels, patches, table = (part[index % per_shard] for part in self._shards[index // per_shard])
        rows = [(int(k), int(c), float(x), float(y)) for k, c, x, y in table if k >= 0]
        shapes = tuple(Shape(KINDS[k], COLOURS[c], 1 - x if mirror_x else x, 1 - y if mirror_y else y) for k, c, x, y in rows)
        if mirror_x:
            pixels, patches, shapes = pixels[:, ::-1], patches[:, ::-1], shapes[::-1]
            patches = np.where((patches > 0) & (patches <= len(shapes)), len(shapes) + 1 - patches, patches)
        if mirror_y:
            pixels, patches = pixels[::-1], patches[::-1]
        return Picture(pixels, shapes, patches)

    def draw(self, rng: np.random.Generator) -> Picture:
        """Returns a random picture, mirrored at random."""
        return self.get(int(rng.integers(len(self))), mirror_x=bool(rng.integers(2)), mirror_y=bool(rng.integers(2)))


def pixel_values(pictures: list[Picture]) -> Tensor:
    """Returns normalised pixels: float32 (num_pictures, 3, size, size)."""
    stacked = torch.from_numpy(np.stack([p.pixels for p in pictures])).permute(0, 3, 1, 2).float() / 255
    return ((stacked - torch.tensor(MEAN)[:, None, None]) / torch.tensor(STD)[:, None, None]).contiguous()


LABEL_SIZES = {
    "kind": len(KINDS) + 1,
    "colour": len(COLOURS) + 1,
    "column": MAX_OBJECTS,
    "centre": 2,
    "count": MAX_OBJECTS + 1,
    "row": MAX_OBJECTS,
    "same kind": MAX_OBJECTS,
    "same colour": MAX_OBJECTS,
    **{f"has {value}": 2 for value in (*KINDS, *COLOURS)},
}
"""What each patch should tell, and how many values that has.

Of the object on the patch: kind and colour (0 none), its place from the left and from the top (0 first), how many others are of its kind
and of its colour. Of the patch: whether an object's centre is here. Of the picture: how many objects it has, and whether it has each kind
and colour.
"""


def patch_labels(pictures: list[Picture]) -> dict[str, Tensor]:
    """Returns int64 (num_pictures, GRID * GRID) for each name in `LABEL_SIZES`, `IGNORED` where there is nothing to say."""
    labels = {name: np.full((len(pictures), GRID, GRID), IGNORED, np.int64) for name in LABEL_SIZES}
    for i, picture in enumerate(pictures):
        for name, value in _labels_of(picture).items():
            labels[name][i] = value
    return {name: torch.from_numpy(value).flatten(1) for name, value in labels.items()}


def _labels_of(picture: Picture) -> dict[str, NDArray[np.int64] | int]:
    shapes = picture.shapes
    kinds, colours = [s.kind for s in shapes], [s.colour for s in shapes]
    heights = sorted(s.y for s in shapes)
    known = picture.patches != 255
    on_patch = np.where(known, picture.patches, 0)

    def spread(nothing: int, values: list[int]) -> NDArray[np.int64]:
        return np.where(known, np.array([nothing, *values], np.int64)[on_patch], IGNORED)

    centre = np.zeros((GRID, GRID), np.int64)
    for shape in shapes:
        centre[min(int(shape.y * GRID), GRID - 1), min(int(shape.x * GRID), GRID - 1)] = 1
    return {
        "kind": spread(0, [KINDS.index(kind) + 1 for kind in kinds]),
        "colour": spread(0, [COLOURS.index(colour) + 1 for colour in colours]),
        "column": spread(IGNORED, list(range(len(shapes)))),
        "centre": centre,
        "count": len(shapes),
        "row": spread(IGNORED, [heights.index(s.y) for s in shapes]),
        "same kind": spread(IGNORED, [kinds.count(kind) - 1 for kind in kinds]),
        "same colour": spread(IGNORED, [colours.count(colour) - 1 for colour in colours]),
        **{f"has {kind}": int(kind in kinds) for kind in KINDS},
        **{f"has {colour}": int(colour in colours) for colour in COLOURS},
    }
