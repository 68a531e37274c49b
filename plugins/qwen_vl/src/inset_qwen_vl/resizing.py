"""How large images and frames become: arithmetic alone, equal to that of transformers' processors."""

from __future__ import annotations

import math
from typing import Final, NamedTuple

from inset.api import InvalidRequestError
from inset_qwen_vl.config import PixelConfig

__all__ = ["bound_squares", "find_largest_size", "resize_image", "resize_video"]

_MAX_RATIO: Final = 200
_ROUNDING: Final = 1 + 1e-9
"""More than floating point is wrong by."""


def resize_image(size: tuple[int, int], config: PixelConfig) -> tuple[int, int]:
    """Returns the (height, width) of an image after resizing: multiples of `PixelConfig.factor`.

    Source: transformers 5.24 ``smart_resize`` of Qwen2-VL.

    Raises:
        InvalidRequestError: One side is more than 200 times the other.
    """
    return _fit(size, config.factor, _Limits(config.min_pixels, config.max_pixels))


def resize_video(num_frames: int, size: tuple[int, int], config: PixelConfig) -> tuple[int, int]:
    """Returns the (height, width) of every frame of a video after resizing.

    Source: transformers 5.24 ``Qwen2VLVideoProcessor.resize`` and ``Qwen3VLVideoProcessor.resize``. The latter refuses a video with fewer
    frames than a patch; here such a video is as large as one whose last frame was repeated.

    Args:
        num_frames: Frames, before the last one is repeated to fill a patch.
        size: (height, width) of a frame.
        config: The limits.

    Raises:
        InvalidRequestError: One side is more than 200 times the other.
    """
    factor, limits = config.factor, _share(num_frames, config)
    height, width = size
    if config.counts_all_frames and (height < factor or width < factor):
        scale = max(factor / height, factor / width)
        size = (int(height * scale), int(width * scale))
    return _fit(size, factor, limits)


class _Limits(NamedTuple):
    """What `_fit` keeps to: the pixels of all frames that share them."""

    min_pixels: int
    max_pixels: int
    num_frames: int = 1
    rounded_frames: int = 1


def _share(num_frames: int, config: PixelConfig) -> _Limits:
    """The limits of a video, which depend on how many frames there are."""
    factor, temporal = config.factor, config.temporal_patch_size
    least, max_pixels = int(config.min_pixels * 1.05), config.max_pixels
    if not config.counts_all_frames:
        if config.cap_pixels_per_frame:
            budget = int(config.max_video_tokens * factor * factor * 0.9)
            max_pixels = max(min(max_pixels, budget * temporal // num_frames), least)
        return _Limits(config.min_pixels, max_pixels)
    num_frames = max(num_frames, temporal)
    if config.cap_pixels_per_frame:
        max_pixels = max(min(config.max_video_tokens * factor * factor, max_pixels // num_frames), least) * num_frames
    return _Limits(config.min_pixels, max_pixels, num_frames, round(num_frames / temporal) * temporal)


def _fit(size: tuple[int, int], factor: int, limits: _Limits) -> tuple[int, int]:
    min_pixels, max_pixels, num_frames, rounded_frames = limits
    height, width = size
    if max(size) / min(size) > _MAX_RATIO:
        raise InvalidRequestError(
            f"{width}x{height} pixels are too thin: one side may be at most {_MAX_RATIO} times the other.", stage="plan"
        )
    new_height, new_width = round(height / factor) * factor, round(width / factor) * factor
    if rounded_frames * new_height * new_width > max_pixels:
        shrink = math.sqrt((num_frames * height * width) / max_pixels)
        new_height = max(factor, math.floor(height / shrink / factor) * factor)
        new_width = max(factor, math.floor(width / shrink / factor) * factor)
    elif rounded_frames * new_height * new_width < min_pixels:
        grow = math.sqrt(min_pixels / (num_frames * height * width))
        new_height = math.ceil(height * grow / factor) * factor
        new_width = math.ceil(width * grow / factor) * factor
    return new_height, new_width


def bound_squares(config: PixelConfig, *, num_frames: int | None = None) -> int:
    """Returns how many merged squares an image, or a frame of a video with so many of them, has at most, whatever its size.

    A shrunk side is rounded down, but not below one square, and a grown one up: thin pictures can have more than `max_pixels` allow.
    """
    limits = _Limits(config.min_pixels, config.max_pixels) if num_frames is None else _share(num_frames, config)
    shared = limits.num_frames * config.factor**2 / _ROUNDING
    most, least = limits.max_pixels / shared, limits.min_pixels / shared
    shrunk = math.isqrt(int(min(most, _MAX_RATIO) * _MAX_RATIO))
    rows, columns = math.floor(math.sqrt(least / _MAX_RATIO)) + 1, math.floor(math.sqrt(least * _MAX_RATIO)) + 1
    # Grown sides of r and c squares have r * c = least before they are rounded up; (r + 1) * (c + 1) is most where r is smallest.
    grown = max(rows * columns, math.floor((rows + 1) * (least / rows + 1)))
    return max(_count_squares(limits, config), shrunk, grown)


def find_largest_size(config: PixelConfig, *, num_frames: int | None = None) -> tuple[int, int]:
    """Returns the (height, width) of an image that takes the most tokens, or of the frames of a video with so many of them, or nearly.

    Most are reached where the limit on pixels divides well, and by thin pictures where a side stops at one token, or is rounded up.
    """
    factor = config.factor
    limits = _Limits(config.min_pixels, config.max_pixels) if num_frames is None else _share(num_frames, config)
    most = _count_squares(limits, config)
    even = [(rows * factor, most // rows * factor) for rows in range(1, math.isqrt(most) + 1) if most // rows <= _MAX_RATIO * rows]
    thin = [(scale, scale * ratio) for ratio in range(1, _MAX_RATIO + 1) for scale in (1, 4 * factor)]

    def count(size: tuple[int, int]) -> tuple[int, int]:
        height, width = resize_image(size, config) if num_frames is None else resize_video(num_frames, size, config)
        return height * width, -abs(height - width)

    return max([*even, *thin], key=count)


def _count_squares(limits: _Limits, config: PixelConfig) -> int:
    """Merged squares that fit into the most pixels; frames that were rounded up count only where nothing is shrunk."""
    return max(1, limits.max_pixels // (min(limits.num_frames, limits.rounded_frames) * config.factor**2))
