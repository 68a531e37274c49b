"""Draws what the model is trained on, as it sees it, with labels.

    python shards.py FOLDER squares --split train --count 120000    pictures of one size, for shapes-llava
    python shards.py FOLDER pictures --split train --count 30000    pictures of many sizes, for shapes-qwen-vl
    python shards.py FOLDER clips --split train --count 10000       clips, for shapes-qwen-vl

Shards that are there already are kept. Each holds `SHARD` pictures, or a quarter as many clips, of one size. The second half of a shard's
pictures shows what its first half does, drawn anew: to tell that two pictures show the same, a model must have seen some that are alike in
nothing else.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray

from clips import MAX_ACTORS, STEPS, draw_clip
from scenes import COLOURS, KINDS, MAX_OBJECTS, SPLITS, Pixels, draw_scene

SHARD = 2000
SQUARE = 112
"""Side in pixels of the pictures that shapes-llava sees."""
PATCH = 14
CELL = 2 * PATCH
"""Side in pixels of what makes one token of shapes-qwen-vl."""
PICTURE_CELLS = (12, 24)
CLIP_CELLS = (12, 16)
"""Fewest and most cells of a picture, and of a clip's frame."""
PICTURE_GRIDS = (
    *((4, 4), (4, 5), (5, 4), (3, 5), (5, 3), (3, 6), (6, 3), (4, 6), (6, 4), (3, 7), (7, 3), (3, 4), (4, 3), (4, 4), (3, 8), (8, 3)),
)
CLIP_GRIDS = ((4, 4), (3, 5), (4, 4), (5, 3), (3, 4), (4, 4), (4, 3))
"""Rows and columns of cells, in the order of the shards."""

Arrays = dict[str, NDArray[np.generic]]


def resize(picture: Pixels, height: int, width: int) -> Pixels:
    """Resizes a picture, whole, as Inset does: uint8 (height, width, 3)."""
    planar = torch.from_numpy(np.ascontiguousarray(picture)).permute(2, 0, 1)[None]  # channels last in memory
    small = torch.nn.functional.interpolate(planar, (height, width), mode="bicubic", antialias=True)
    return small[0].permute(1, 2, 0).contiguous().numpy()


def draw_squares(split: str, number: int) -> Arrays:
    """Draws one shard of pictures of 112 pixels a side: pixels, patches, and a table of objects."""
    return _pictures(split, number, (SQUARE // PATCH, SQUARE // PATCH), squeeze=True)


def draw_pictures(split: str, number: int) -> Arrays:
    """Draws one shard of pictures that keep their shape; the size changes from shard to shard."""
    rows, columns = PICTURE_GRIDS[number % len(PICTURE_GRIDS)]
    return _pictures(split, number, (2 * rows, 2 * columns), squeeze=False)


def _pictures(split: str, number: int, grid: tuple[int, int], *, squeeze: bool) -> Arrays:
    """Returns `pixels` (SHARD, h, w, 3), `patches` (SHARD, *grid) and `table` (SHARD, MAX_OBJECTS, 4).

    The table says of each object its kind, colour, x and y; kind is -1 for none.
    """
    height, width = grid[0] * PATCH, grid[1] * PATCH
    pixels = np.empty((SHARD, height, width, 3), np.uint8)
    patches = np.empty((SHARD, *grid), np.uint8)
    table = np.full((SHARD, MAX_OBJECTS, 4), -1, np.float32)
    contents: list[list[tuple[str, str]]] = []
    for i in range(SHARD):
        index = number * SHARD + i
        shown = None if i < SHARD // 2 else contents[i - SHARD // 2]
        scene = draw_scene(split, index, None if squeeze else _near(split, index, width, height), shown, grid=grid)
        contents.append([(shape.kind, shape.colour) for shape in scene.shapes])
        pixels[i], patches[i] = resize(scene.picture, height, width), scene.patches
        for j, shape in enumerate(scene.shapes):
            table[i, j] = (KINDS.index(shape.kind), COLOURS.index(shape.colour), shape.x, shape.y)
    return {"pixels": pixels, "patches": patches, "table": table}


def draw_clips(split: str, number: int) -> Arrays:
    """Draws one shard of clips.

    Returns `frames` (n, STEPS, h, w, 3), `patches` (n, STEPS, rows, columns) and `table` (n, MAX_ACTORS, 10). The table says of each actor
    its kind, both colours, when it turns, appears and disappears, and its path; kind is -1 for none.
    """
    rows, columns = CLIP_GRIDS[number % len(CLIP_GRIDS)]
    height, width, count = rows * CELL, columns * CELL, SHARD // 4
    frames = np.empty((count, STEPS, height, width, 3), np.uint8)
    patches = np.empty((count, STEPS, 2 * rows, 2 * columns), np.uint8)
    table = np.full((count, MAX_ACTORS, 10), -1, np.float32)
    for i in range(count):
        index = number * count + i
        clip = draw_clip(split, index, _near(split, index, width, height), grid=(2 * rows, 2 * columns))
        frames[i], patches[i] = [resize(frame, height, width) for frame in clip.frames], clip.patches
        for j, actor in enumerate(clip.actors):
            colours = [COLOURS.index(colour) for colour in actor.colours]
            times = (actor.turns_at, actor.appears_at, actor.disappears_at)
            table[i, j] = (KINDS.index(actor.kind), *colours, *times, *actor.path[0], *actor.path[1])
    return {"frames": frames, "patches": patches, "table": table}


def _near(split: str, index: int, width: int, height: int) -> tuple[int, int]:
    """Returns a size, width and height, that is resized to the one given: larger, and of nearly its shape."""
    rng = np.random.default_rng([SPLITS[split], 77, index])
    scale, aspect = np.exp(rng.uniform(0, 0.6)), np.exp(rng.uniform(-0.06, 0.06))
    return round(width * scale * aspect), round(height * scale / aspect)


DRAW: dict[str, Callable[[str, int], Arrays]] = {"squares": draw_squares, "pictures": draw_pictures, "clips": draw_clips}


def write_shard(folder: Path, what: str, split: str, number: int) -> None:
    """Draws one shard into FOLDER/WHAT-SPLIT-NUMBER.npz, unless it is there."""
    path = folder / f"{what}-{split}-{number:04d}.npz"
    if path.exists():
        return
    part = path.with_suffix(".part.npz")
    np.savez(part, **DRAW[what](split, number))  # type: ignore[arg-type]  # numpy's annotation of its own keywords gets in the way
    part.rename(path)


def main() -> None:
    """Runs the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("what", choices=tuple(DRAW))
    parser.add_argument("--split", choices=tuple(SPLITS), default="train")
    parser.add_argument("--count", type=int, default=SHARD)
    options = parser.parse_args()
    torch.set_num_threads(1)
    options.folder.mkdir(parents=True, exist_ok=True)
    per_shard = SHARD // 4 if options.what == "clips" else SHARD
    for number in range(-(-options.count // per_shard)):
        write_shard(options.folder, options.what, options.split, number)
        print("shard", number, flush=True)


if __name__ == "__main__":
    main()
