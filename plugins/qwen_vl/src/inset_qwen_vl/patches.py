"""Cuts resized pictures into patches, in the order in which the vision tower reads them."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from inset.api import resize_pixels
from inset_qwen_vl.config import PixelConfig

if TYPE_CHECKING:
    from numpy.typing import NDArray

__all__ = ["cut_image", "cut_video"]


def cut_image(pixels: NDArray[np.uint8], size: tuple[int, int], config: PixelConfig) -> NDArray[np.uint8]:
    """Returns the patches of one image; that a still picture fills its temporal patch is left to where the encoder runs.

    Source: transformers 5.24 ``Qwen2VLImageProcessor.patchify``.

    Args:
        pixels: ``(height, width, 3)`` uint8 RGB.
        size: (height, width) after resizing.
        config: Patches and filter.

    Returns:
        ``(num_patches, patch_size, patch_size, 3)`` uint8, the patches of each merged square one after another.
    """
    patches = np.empty((*_squares(size, config), config.patch_size, config.patch_size * 3), np.uint8)
    patches[:] = _cut(resize_pixels(pixels, size, resample=config.resample), config)
    return patches.reshape(-1, config.patch_size, config.patch_size, 3)


def cut_video(frames: NDArray[np.uint8], size: tuple[int, int], config: PixelConfig) -> NDArray[np.uint8]:
    """Returns the patches of one video, frame by frame resized; the last frame is repeated to fill a temporal patch.

    Source: transformers 5.24 ``Qwen2VLVideoProcessor.patchify``.

    Args:
        frames: ``(num_frames, height, width, 3)`` uint8 RGB.
        size: (height, width) of a frame after resizing.
        config: Patches and filter.

    Returns:
        ``(num_patches, temporal_patch_size, patch_size, patch_size, 3)`` uint8.
    """
    patch, temporal = config.patch_size, config.temporal_patch_size
    groups = -(-len(frames) // temporal)
    patches = np.empty((groups, *_squares(size, config), temporal, patch, patch * 3), np.uint8)
    for index in range(groups * temporal):
        out = patches[index // temporal, :, :, :, :, index % temporal]
        if index < len(frames):
            out[:] = _cut(resize_pixels(frames[index], size, resample=config.resample), config)
        else:
            out[:] = patches[index // temporal, :, :, :, :, index % temporal - 1]
    return patches.reshape(-1, temporal, patch, patch, 3)


def _squares(size: tuple[int, int], config: PixelConfig) -> tuple[int, int, int, int]:
    """Rows and columns of merged squares, and of patches inside one."""
    return size[0] // config.factor, size[1] // config.factor, config.merge_size, config.merge_size


def _cut(picture: NDArray[np.uint8], config: PixelConfig) -> NDArray[np.uint8]:
    """A view (rows, columns, merge, merge, patch, patch * 3): whole rows of a patch are copied, which is why channels stay last."""
    rows, columns, merge, _ = _squares((picture.shape[0], picture.shape[1]), config)
    patch = config.patch_size
    return picture.reshape(rows, merge, patch, columns, merge, patch * 3).transpose(0, 3, 1, 4, 2, 5)
