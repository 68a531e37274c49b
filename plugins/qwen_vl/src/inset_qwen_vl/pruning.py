"""Leaves out what does not change in a video."""

from __future__ import annotations

from typing import Final

import torch

__all__ = ["choose_kept"]

_RESOLUTION: Final = 1024


def choose_kept(rows: torch.Tensor, *, num_steps: int, num_kept: int) -> torch.Tensor:
    """Returns which tokens of a video are kept: all of the first step, and those that differ most from the step before them.

    The difference is 1 minus the cosine between a row and the row at the same place one step before, in steps of 1/1024: what is less
    is rounding. A tie keeps the earlier token. The same rows keep the same tokens; see `Qwen2VLAdapter.encode`.

    Source: efficient video sampling, arXiv 2510.14624, which compares pixels; vLLM's ``video_pruning_rate`` compares rows, as here.

    Args:
        rows: ``(num_tokens, hidden_size)`` as the encoder gives them, step by step.
        num_steps: Steps along time.
        num_kept: How many are kept; at least those of one step.

    Returns:
        ``(num_kept,)`` int64, ascending, on the device of `rows`.
    """
    steps = torch.nn.functional.normalize(rows.float(), dim=-1).view(num_steps, -1, rows.shape[1])
    per_step = steps.shape[1]
    change = 1 - (steps[1:] * steps[:-1]).sum(-1).flatten()
    changed = (change * _RESOLUTION).round().argsort(descending=True, stable=True)[: num_kept - per_step]
    first = torch.arange(per_step, device=rows.device)
    return torch.cat([first, per_step + changed.sort().values])
