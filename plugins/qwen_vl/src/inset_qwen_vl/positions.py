"""Rotary positions in three axes (t, h, w), computed once per request."""

from __future__ import annotations

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
    """

    start: int
    grid: tuple[int, int, int]
    time_interval: float = 1.0

    @property
    def stop(self) -> int:
        """The position behind the last one."""
        rows, height, width = self.grid
        return self.start + rows * height * width


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
            interval = _multiply(tokens_per_second, float(str(feature.plan.details.get("second_per_grid_ts", 1.0))))
        for start, stop in feature.placeholder.runs:
            steps, rest = divmod(stop - start, height * width)
            if rest:
                raise InvariantError(f"The placeholder of {feature.modality} {feature.item_index} is no multiple of its grid {grid}.")
            runs.append(GridRun(feature.placeholder.offset + start, (steps, height, width), interval))
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
        steps, height, width = run.grid
        span = positions[:, run.start : run.stop].view(3, steps, height, width)
        span[0] = ((torch.arange(steps) * run.time_interval).long() + current)[:, None, None]
        span[1] = (torch.arange(height) + current)[None, :, None]
        span[2] = (torch.arange(width) + current)[None, None, :]
        current += max(height, width)
        end = run.stop
    current += num_tokens - end
    positions[:, end:] = torch.arange(current - (num_tokens - end), current)
    return PromptPositions(positions, current)


def _multiply(tokens_per_second: float, seconds: float) -> float:
    """In float32, as a tensor of seconds is multiplied by transformers."""
    return float(torch.tensor(seconds, dtype=torch.float32) * tokens_per_second)
