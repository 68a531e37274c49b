"""What each patch of the vision tower should tell, and the scaffolding that reads it off during training.

The heads are used by both stages of training; the checkpoint does not keep them.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from data import DIRECTIONS, Item, Moment
from scenes import COLOURS, KINDS, MAX_OBJECTS

IGNORED = -100
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
and of its colour. Of the patch: whether an object's centre is here. Of the picture: how many objects it has, and whether it has each
kind and colour.
"""
PLACE_SIZES = {"across": 8, "down": 8}
"""For pictures of 8 patches a side: the column and the row of patches that the centre of the object on the patch is in."""
MOTION_SIZES = {"direction": len(DIRECTIONS)}
"""For clips: where the object on the patch moves to."""

LOSS_WEIGHTS = {
    "kind": 2.0,
    "colour": 1.0,
    "centre": 1.0,
    "row": 1.0,
    "direction": 2.0,
    "column": 0.5,
    "count": 0.5,
    "same kind": 0.5,
    "same colour": 0.3,
    "across": 0.5,
    "down": 0.5,
}
OTHER_WEIGHT = 0.15
Arrange = Callable[[NDArray[np.int64]], NDArray[np.int64]]
"""Turns labels (rows, columns) into one row of them, in the order of a tower's patches."""


def patch_labels(items: Sequence[Item], names: Sequence[str], arrange: Arrange) -> dict[str, Tensor]:
    """Returns int64 (num_patches,) for each name, over all moments of all items; `IGNORED` where there is nothing to say."""
    found: dict[str, list[NDArray[np.int64]]] = {name: [] for name in names}
    for item in items:
        size = item.frames.shape[1] // 14, item.frames.shape[2] // 14
        for moment in item.moments:
            labels = {} if moment is None else _labels_of(moment)
            for name, parts in found.items():
                parts.append(arrange(np.broadcast_to(np.asarray(labels.get(name, IGNORED), np.int64), size)))
    return {name: torch.from_numpy(np.concatenate(parts)) for name, parts in found.items()}


def _labels_of(moment: Moment) -> dict[str, NDArray[np.int64] | int]:
    shapes = moment.shapes
    kinds, colours = [s.kind for s in shapes], [s.colour for s in shapes]
    heights = sorted(s.y for s in shapes)
    known = moment.patches != 255
    on_patch = np.where(known, moment.patches, 0)
    rows, columns = moment.patches.shape

    def spread(nothing: int, values: list[int]) -> NDArray[np.int64]:
        return np.where(known, np.array([nothing, *values], np.int64)[on_patch], IGNORED)

    centre = np.zeros((rows, columns), np.int64)
    for shape in shapes:
        centre[_cell(shape.y, rows), _cell(shape.x, columns)] = 1
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
        "across": spread(IGNORED, [_cell(shape.x, columns) for shape in shapes]),
        "down": spread(IGNORED, [_cell(shape.y, rows) for shape in shapes]),
        "direction": spread(IGNORED, [DIRECTIONS.index(direction) for direction in moment.directions]),
    }


def _cell(place: float, cells: int) -> int:
    return min(int(place * cells), cells - 1)


class PatchHeads(nn.Module):
    """Reads each label off each patch's features."""

    def __init__(self, hidden_size: int, sizes: dict[str, int]) -> None:
        super().__init__()
        self.sizes = sizes
        self.norm = nn.LayerNorm(hidden_size)
        self.read = nn.Linear(hidden_size, sum(sizes.values()))

    def forward(self, features: Tensor) -> dict[str, Tensor]:
        """Returns logits (num_patches, label size) for each label from features (num_patches, hidden_size)."""
        return dict(zip(self.sizes, self.read(self.norm(features)).split(list(self.sizes.values()), -1), strict=True))

    def loss(self, features: Tensor, labels: dict[str, Tensor]) -> Tensor:
        """Returns the weighted sum of the cross entropies; kinds, the hardest, are learned from the patches of objects alone."""
        total = features.new_zeros(())
        for name, logits in self(features.float()).items():
            wanted = labels[name]
            if name == "kind":
                wanted = wanted.masked_fill(wanted == 0, IGNORED)
            if bool((wanted != IGNORED).any()):
                weight = LOSS_WEIGHTS.get(name, OTHER_WEIGHT)
                total = total + weight * nn.functional.cross_entropy(logits, wanted, ignore_index=IGNORED)
        return total

    @torch.no_grad()
    def accuracy(self, features: Tensor, labels: dict[str, Tensor]) -> dict[str, float]:
        """Returns the share of labelled patches that each head reads right; of kind, colour and centre only where there is an object."""
        result = {}
        for name, logits in self(features.float()).items():
            wanted = labels[name]
            asked = wanted > 0 if name in ("kind", "colour", "centre") else wanted != IGNORED
            result[name] = round(float((logits.argmax(-1) == wanted)[asked].float().mean()), 3)
        return result
