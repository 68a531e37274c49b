"""The images and videos that take the most tokens, or nearly: what the measurement of memory goes by."""

from __future__ import annotations

from dataclasses import replace
from functools import partial

from inset.api import DummyInputsBuilder, MediaHeader
from inset_qwen_vl.config import PixelConfig
from inset_qwen_vl.info import SLOW_FPS, Qwen2VLProcessingInfo
from inset_qwen_vl.resizing import find_largest_size

__all__ = ["QwenVLDummyInputs"]


class QwenVLDummyInputs(DummyInputsBuilder):
    """The largest image and the largest video that the context holds under the options of the operator; for all families."""

    def get_largest_header(self, modality: str) -> MediaHeader:
        """Returns the header of that item."""
        info = self.info
        assert isinstance(info, Qwen2VLProcessingInfo)
        config = info.operator_pixels(modality)
        if modality == "video":
            return _find_largest_video(info, config, max_tokens=info.max_model_len)
        height, width = find_largest_size(_limited(config, info.max_model_len))
        return MediaHeader(modality="image", width=width, height=height, decoded_bytes=3 * height * width)


def _find_largest_video(info: Qwen2VLProcessingInfo, config: PixelConfig, *, max_tokens: int | None) -> MediaHeader:
    """Returns the header of a video that takes the most tokens, or of one with fewer and smaller frames that takes `max_tokens` at most.

    One frame of the fewest pixels may still take more.
    """
    sharing = config.temporal_patch_size if config.counts_all_frames else 1  # two frames that share the pixels are one step of tokens
    limited = _limited(config, None if max_tokens is None else max_tokens * sharing)
    most_frames = info.most_frames
    while True:
        num_frames = max(range(1, most_frames + 1), key=partial(info.bound_embeds, limited))
        header = _make_video_header(num_frames, limited)
        num_tokens = info.plan_item(header, config).num_tokens
        if max_tokens is None or num_tokens <= max_tokens or num_frames == 1:
            return header
        most_frames = max(1, num_frames * max_tokens // num_tokens)
        if config.counts_all_frames:
            limited = _limited(limited, limited.max_pixels * max_tokens // num_tokens // config.factor**2)


def _limited(config: PixelConfig, max_tokens: int | None) -> PixelConfig:
    if max_tokens is None:
        return config
    most = max(1, max_tokens) * config.factor**2
    return replace(config, min_pixels=min(config.min_pixels, most), max_pixels=min(config.max_pixels, most))


def _make_video_header(num_frames: int, config: PixelConfig) -> MediaHeader:
    height, width = find_largest_size(config, num_frames=num_frames)
    return MediaHeader(
        modality="video",
        width=width,
        height=height,
        num_frames=num_frames,
        total_num_frames=num_frames,
        fps=SLOW_FPS,
        frame_indices=tuple(range(num_frames)),
        timestamps_seconds=tuple(index / SLOW_FPS for index in range(num_frames)),
        duration_seconds=num_frames / SLOW_FPS,
        decoded_bytes=3 * num_frames * height * width,
    )
