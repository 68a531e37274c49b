"""The images and videos that take the most tokens: what the encoder's limits and the measurement of memory go by."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Final

from inset.api import MediaHeader
from inset_qwen_vl.config import PixelConfig
from inset_qwen_vl.resizing import find_largest_size

__all__ = ["find_largest_image", "find_largest_video"]

_FPS: Final = 24.0
_FEW: Final = 9
"""Counts of frames that are tried besides the most: where all frames share the pixels, rounding favours 5 of them most."""


def find_largest_image(config: PixelConfig, *, max_tokens: int | None = None) -> MediaHeader:
    """Returns the header of an image that takes the most tokens, and about `max_tokens` where that is fewer."""
    height, width = find_largest_size(_limited(config, max_tokens))
    return MediaHeader(modality="image", width=width, height=height, decoded_bytes=3 * height * width)


def find_largest_video(
    config: PixelConfig, most_frames: int, *, count_tokens: Callable[[MediaHeader], int], max_tokens: int | None = None
) -> MediaHeader:
    """Returns the header of a video that takes the most tokens, or of one with fewer and smaller frames that takes `max_tokens` at most.

    Args:
        config: How frames become patches.
        most_frames: Most frames that are looked at.
        count_tokens: Returns the tokens of a header.
        max_tokens: Most tokens, or None; one frame of the fewest pixels may still take more.
    """
    sharing = config.temporal_patch_size if config.counts_all_frames else 1  # two frames that share the pixels are one step of tokens
    limited = _limited(config, None if max_tokens is None else max_tokens * sharing)
    while True:
        counts = {*range(1, min(_FEW, most_frames) + 1), *range(max(1, most_frames - 3), most_frames + 1)}
        header = max((_make_header(count, limited) for count in sorted(counts)), key=count_tokens)
        num_tokens = count_tokens(header)
        if max_tokens is None or num_tokens <= max_tokens or most_frames == 1:
            return header
        most_frames = max(1, most_frames * max_tokens // num_tokens)
        if config.counts_all_frames:
            limited = _limited(limited, limited.max_pixels * max_tokens // num_tokens // config.factor**2)


def _limited(config: PixelConfig, max_tokens: int | None) -> PixelConfig:
    if max_tokens is None:
        return config
    most = max(1, max_tokens) * config.factor**2
    return replace(config, min_pixels=min(config.min_pixels, most), max_pixels=min(config.max_pixels, most))


def _make_header(num_frames: int, config: PixelConfig) -> MediaHeader:
    height, width = find_largest_size(config, num_frames=num_frames)
    return MediaHeader(
        modality="video",
        width=width,
        height=height,
        num_frames=num_frames,
        total_num_frames=num_frames,
        fps=_FPS,
        frame_indices=tuple(range(num_frames)),
        timestamps_seconds=tuple(index / _FPS for index in range(num_frames)),
        duration_seconds=num_frames / _FPS,
        decoded_bytes=3 * num_frames * height * width,
    )
