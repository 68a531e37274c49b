"""Rotary positions in three axes (t, h, w), computed once per request."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

import torch

from inset.api import InvariantError, MultiModalFeature, PromptPositions

__all__ = ["GridRun", "compute_positions", "find_grid_runs"]


class GridRun(NamedTuple):
    """Neighbouring prompt positions that are one grid.

    Attributes:
        start: First position.
        grid: Tokens along (t, h, w).
        time_interval: What one step along t adds to the position of that axis, before it is rounded down.
        kept: ``(num_kept,)`` int64: the tokens of the grid that are there, ascending; None means all.
    """

    start: int
    grid: tuple[int, int, int]
    time_interval: float = 1.0
    kept: torch.Tensor | None = None

    @property
    def stop(self) -> int:
        """The position behind the last one."""
        return self.start + (math.prod(self.grid) if self.kept is None else len(self.kept))

    def span(self) -> torch.Tensor:
        """Returns ``(3, num_positions)`` int64 positions along (t, h, w), from 0."""
        steps, height, width = self.grid
        axes = ((torch.arange(steps) * self.time_interval).long(), torch.arange(height), torch.arange(width))
        span = torch.stack(torch.meshgrid(*axes, indexing="ij")).flatten(1)
        return span if self.kept is None else span[:, self.kept]


def find_grid_runs(mm_features: Sequence[MultiModalFeature], *, merge_size: int, tokens_per_second: float | None) -> list[GridRun]:
    """Returns the grids of a prompt in order: one of each image and video, one of each frame where text stands between frames.

    Args:
        mm_features: The items, with grids in their plans.
        merge_size: Patches along one side of the square that makes one token.
        tokens_per_second: Makes the time axis of videos run in seconds; None where it counts grids.

    Raises:
        InvariantError: A placeholder and its plan differ.
    """
    runs: list[GridRun] = []
    for feature in sorted(mm_features, key=lambda feature: feature.placeholder.offset):
        grid = feature.plan.grid
        if grid is None:
            raise InvariantError(f"The plan of {feature.modality} {feature.item_index} has no grid.")
        height, width = grid[1] // merge_size, grid[2] // merge_size
        interval = 1.0
        if feature.modality == "video" and tokens_per_second is not None:
            seconds = feature.plan.details["second_per_grid_ts"]
            assert isinstance(seconds, int | float), "a plan of this family holds a number"
            interval = _multiply(tokens_per_second, seconds)
        kept = (feature.data or {}).get("kept")
        steps = grid[0] // len(feature.placeholder.runs)
        for start, stop in feature.placeholder.runs:
            indices = None if kept is None else torch.tensor(kept)
            run = GridRun(feature.placeholder.offset + start, (steps, height, width), interval, indices)
            if run.stop != feature.placeholder.offset + stop:
                raise InvariantError(f"The placeholder of {feature.modality} {feature.item_index} does not fit its grid {grid}.")
            runs.append(run)
    return runs


def compute_positions(num_tokens: int, runs: Sequence[GridRun]) -> PromptPositions:
    """Returns the positions of a prompt: text counts up on all axes, a grid spans them, and text starts behind its longer side.

    The answer goes on like text, as ``generate`` and ``get_rope_index`` of the prompt with its answer have it. The
    ``mrope_position_deltas`` of the prompt alone would put it behind the largest position, which a video of many frames reaches.

    Source: transformers 5.24 ``get_rope_index`` of Qwen2-VL, Qwen2.5-VL and Qwen3-VL.

    Args:
        num_tokens: Length of the prompt.
        runs: The grids in order.
    """
    positions = torch.empty((3, num_tokens), dtype=torch.int64)
    end, current = 0, 0
    for run in runs:
        positions[:, end : run.start] = torch.arange(current, current + run.start - end)
        current += run.start - end
        positions[:, run.start : run.stop] = run.span() + current
        current += max(run.grid[1:])
        end = run.stop
    current += num_tokens - end
    positions[:, end:] = torch.arange(current - (num_tokens - end), current)
    return PromptPositions(positions, current)


def _multiply(tokens_per_second: float, seconds: float) -> float:
    """In float32, as a tensor of seconds is multiplied by transformers."""
    return float(torch.tensor(seconds, dtype=torch.float32) * tokens_per_second)
