"""Leaves out what does not change in a video: how many tokens are kept, and which."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from inset_qwen_vl.config import PixelConfig

if TYPE_CHECKING:
    from numpy.typing import NDArray

__all__ = ["choose_kept", "count_kept"]


def count_kept(grid: tuple[int, int, int], config: PixelConfig) -> int:
    """Returns how many tokens of a video are kept: the share that is not pruned, and at least all of the first step.

    Args:
        grid: Patches along (t, h, w).
        config: The share that is pruned, and the patches that make one token.
    """
    per_step = (grid[1] // config.merge_size) * (grid[2] // config.merge_size)
    return max(per_step, int(grid[0] * per_step * (1 - config.pruning_rate)))


def choose_kept(patches: NDArray[np.uint8], grid: tuple[int, int, int], config: PixelConfig) -> NDArray[np.int64]:
    """Returns the tokens of a video that are kept: all of the first step, and those that differ most from the step before them.

    They are compared by their pixels, so that prompt and positions are known before the encoder runs; a tie keeps the earlier token.

    Args:
        patches: ``(num_patches, temporal_patch_size, patch_size, patch_size, 3)`` uint8, as `cut_video` gives them.
        grid: Patches along (t, h, w).
        config: As for `count_kept`.

    Returns:
        ``(num_kept,)`` int64, ascending.
    """
    merged = config.merge_size**2
    tokens = patches.reshape(grid[0], len(patches) // grid[0] // merged, -1)
    change = np.full(tokens.shape[:2], np.inf, np.float64)
    for step in range(1, grid[0]):
        change[step] = np.abs(tokens[step].astype(np.int16) - tokens[step - 1]).mean(axis=1)
    order = np.argsort(-change.ravel(), kind="stable")
    return np.sort(order[: count_kept(grid, config)]).astype(np.int64)
