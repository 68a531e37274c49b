"""Which frames of a video the families look at, as decoders that the core calls."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from typing import ClassVar

import numpy as np

from inset.api import JSON, Checkpoint, MediaConfig, MediaIOFactory, VideoFacts, VideoIO, VideoSampler
from inset_qwen_vl.config import SamplingConfig, apply_sampling_options, read_sampling_config

__all__ = ["Qwen2VLSampler", "Qwen3VLSampler", "video_io_factory"]


@dataclass(frozen=True, slots=True)
class Qwen2VLSampler:
    """Frames at a steady rate from the first one on, as many as fill temporal patches; for Qwen2-VL and Qwen2.5-VL.

    A video with fewer frames than one patch gives all it has, and `num_frames` at most those: transformers refuses both. By rounding it
    can ask for one frame more, behind the end of the video.

    Source: transformers 5.24 ``Qwen2VLVideoProcessor.sample_frames``.
    """

    config: SamplingConfig
    name: ClassVar[str] = "qwen2_vl"

    def get_settings(self) -> Mapping[str, JSON]:
        """Returns the whole config."""
        return asdict(self.config)

    def sample(self, facts: VideoFacts) -> Sequence[int]:
        """Returns positions among the frames of a video; see `VideoSampler.sample`."""
        total = facts.num_frames
        count = min(self._count(facts), total) or total
        # In float32, as transformers counts: a position can come out one frame earlier than in exact arithmetic.
        positions = (np.arange(count, dtype=np.float64) * (total / count)).astype(np.float32).astype(np.int64)
        return [int(position) for position in positions.clip(max=total - 1)]

    def _count(self, facts: VideoFacts) -> int:
        config, patch = self.config, self.config.temporal_patch_size
        if config.num_frames is not None:
            return max(1, round(config.num_frames / patch)) * patch
        most = min(config.max_frames, facts.num_frames) // patch * patch
        wanted = facts.num_frames / facts.fps * config.fps
        return math.floor(min(max(wanted, config.min_frames), most, facts.num_frames) / patch) * patch


@dataclass(frozen=True, slots=True)
class Qwen3VLSampler:
    """Frames spread evenly from the first to the last, as many as a steady rate would give; for Qwen3-VL.

    Source: transformers 5.24 ``Qwen3VLVideoProcessor.sample_frames``.
    """

    config: SamplingConfig
    name: ClassVar[str] = "qwen3_vl"

    def get_settings(self) -> Mapping[str, JSON]:
        """Returns the whole config."""
        return asdict(self.config)

    def sample(self, facts: VideoFacts) -> Sequence[int]:
        """Returns positions among the frames of a video; see `VideoSampler.sample`."""
        config, total = self.config, facts.num_frames
        count = config.num_frames
        if count is None:
            count = min(max(int(min(total / facts.fps * config.fps, total)), config.min_frames), config.max_frames, total)
        return [int(position) for position in np.linspace(0, total - 1, count).round()]


def video_io_factory(checkpoint: Checkpoint) -> MediaIOFactory:
    """Returns what makes the decoder of a checkpoint's videos.

    Options of a request, or of the operator: ``num_frames``, or ``fps`` with ``min_frames`` and ``max_frames``. What is not given comes
    from the checkpoint's config for videos.

    Raises:
        ConfigError: That config cannot be sampled by.
    """
    make_sampler = Qwen3VLSampler if checkpoint.model_type == "qwen3_vl" else Qwen2VLSampler
    return partial(_make_video_io, make_sampler, read_sampling_config(checkpoint))


def _make_video_io(
    make_sampler: Callable[[SamplingConfig], VideoSampler],
    config: SamplingConfig,
    options: Mapping[str, JSON],
    media_config: MediaConfig,
) -> VideoIO:
    return VideoIO({}, media_config, sampler=make_sampler(apply_sampling_options(config, options)))
