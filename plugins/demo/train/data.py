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


def patch_labels(pictures: list[Picture]) -> dict[str, Tensor]:
    """Returns what each patch should tell: int64 (num_pictures, GRID * GRID) for each label, `IGNORED` where there is nothing to say.

    kind and colour of the object on the patch (0 none), its place from the left (0 first), whether its centre is here, and how many
    objects the picture has.
    """
    labels = {name: np.full((len(pictures), GRID, GRID), IGNORED, np.int64) for name in ("kind", "colour", "place", "centre", "count")}
    for i, picture in enumerate(pictures):
        known = picture.patches != 255
        kinds = np.array([0, *(KINDS.index(s.kind) + 1 for s in picture.shapes)])
        colours = np.array([0, *(COLOURS.index(s.colour) + 1 for s in picture.shapes)])
        on_patch = np.where(known, picture.patches, 0)
        labels["kind"][i] = np.where(known, kinds[on_patch], IGNORED)
        labels["colour"][i] = np.where(known, colours[on_patch], IGNORED)
        labels["place"][i] = np.where(known & (on_patch > 0), on_patch.astype(np.int64) - 1, IGNORED)
        labels["centre"][i] = 0
        labels["count"][i] = len(picture.shapes)
        for shape in picture.shapes:
            labels["centre"][i, min(int(shape.y * GRID), GRID - 1), min(int(shape.x * GRID), GRID - 1)] = 1
    return {name: torch.from_numpy(value).flatten(1) for name, value in labels.items()}


LABEL_SIZES = {"kind": len(KINDS) + 1, "colour": len(COLOURS) + 1, "place": MAX_OBJECTS, "centre": 2, "count": MAX_OBJECTS + 1}
