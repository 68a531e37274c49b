"""Rotary positions in three axes (t, h, w), computed once per request."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

import torch

from inset.api import InvariantError, MultiModalFeature, PromptPositions

__all__ = ["Grid", "GridRun", "compute_positions", "find_grid_runs", "make_grid"]


class Grid(NamedTuple):
    """Where the tokens of an item stand in time and space.

    Attributes:
        shape: Tokens along (t, h, w).
        time_interval: What one step along t adds to the position of that axis, before it is rounded down.
    """

    shape: tuple[int, int, int]
    time_interval: float = 1.0

    def span(self) -> torch.Tensor:
        """Returns ``(3, num_tokens)`` int64 positions along (t, h, w), from 0."""
        steps, height, width = self.shape
        axes = ((torch.arange(steps) * self.time_interval).long(), torch.arange(height), torch.arange(width))
        return torch.stack(torch.meshgrid(*axes, indexing="ij")).flatten(1)


class GridRun(NamedTuple):
    """Neighbouring prompt positions that are one grid.

    Attributes:
        start: First position.
        grid: The grid.
        num_kept: How many of its tokens are there; None means all.
    """

    start: int
    grid: Grid
    num_kept: int | None = None

    @property
    def stop(self) -> int:
        """The position behind the last one."""
        return self.start + (math.prod(self.grid.shape) if self.num_kept is None else self.num_kept)


def make_grid(
    grid_thw: tuple[int, int, int], *, merge_size: int, seconds_per_step: float | None = None, tokens_per_second: float | None = None
) -> Grid:
    """Returns the grid of an item's tokens.

    Args:
        grid_thw: Patches along (t, h, w).
        merge_size: Patches along one side of the square that makes one token.
        seconds_per_step: Seconds between two steps along t.
        tokens_per_second: Makes the time axis run in seconds. Without both of these it counts steps.
    """
    interval = 1.0
    if seconds_per_step is not None and tokens_per_second is not None:  # in float32, as a tensor of seconds is multiplied by transformers
        interval = float(torch.tensor(seconds_per_step, dtype=torch.float32) * tokens_per_second)
    return Grid((grid_thw[0], grid_thw[1] // merge_size, grid_thw[2] // merge_size), interval)


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
        thw, details = feature.plan.grid, feature.plan.details
        if thw is None:
            raise InvariantError(f"The plan of {feature.modality} {feature.item_index} has no grid.")
        seconds, num_kept = details.get("second_per_grid_ts"), details.get("num_kept")
        assert isinstance(seconds, int | float | None) and isinstance(num_kept, int | None)  # noqa: PT018 - narrows both for the type checker
        steps = thw[0] // len(feature.placeholder.runs)
        grid = make_grid((steps, *thw[1:]), merge_size=merge_size, seconds_per_step=seconds, tokens_per_second=tokens_per_second)
        for start, stop in feature.placeholder.runs:
            run = GridRun(feature.placeholder.offset + start, grid, num_kept)
            if run.stop != feature.placeholder.offset + stop:
                raise InvariantError(f"The placeholder of {feature.modality} {feature.item_index} does not fit its grid {thw}.")
            runs.append(run)
    return runs


def compute_positions(num_tokens: int, runs: Sequence[GridRun]) -> PromptPositions:
    """Returns the positions of a prompt: text counts up on all axes, a grid spans them, and text starts behind its longer side.

    Where tokens of a grid are left out, the text behind it stands where it would behind all of them, so that it is known before the
    encoder chooses. Until then those that stay have the places of the first ones; the encoder's choice takes their place.

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
        positions[:, run.start : run.stop] = run.grid.span()[:, : run.stop - run.start] + current
        current += max(run.grid.shape[1:])
        end = run.stop
    current += num_tokens - end
    positions[:, end:] = torch.arange(current - (num_tokens - end), current)
    return PromptPositions(positions, current)
