"""The suites that every model family inherits, for Qwen2-VL, Qwen2.5-VL and Qwen3-VL."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pytest

from inset.checkpoint import Checkpoint
from inset.config import MediaConfig
from inset.identity import JSON
from inset.media.decoded import VideoFrames
from inset.media.header import MediaHeader
from inset.media.video import VideoIO
from inset.testing.conformance.media_io import MediaIOConformance
from inset.testing.conformance.model import ModelConformance
from inset.testing.conformance.processor import ProcessorConformance
from inset.testing.sample_clips import make_video
from inset_qwen_vl import plugin
from inset_qwen_vl.media import video_io_factory

OPTIONS: Mapping[str, Mapping[str, JSON]] = {
    "image": {"min_pixels": 12544, "max_pixels": 25088},
    "video": {"size": {"shortest_edge": 12544, "longest_edge": 25088}, "resample": 2},
}
FEW_FRAMES: Mapping[str, Mapping[str, JSON]] = {"video": {"fps": 1, "max_frames": 8}}


class TestQwen2VLProcessor(ProcessorConformance):
    plugin = plugin
    options: ClassVar[Mapping[str, Mapping[str, JSON]]] = OPTIONS
    decode_options: ClassVar[Mapping[str, Mapping[str, JSON]]] = FEW_FRAMES

    @pytest.fixture
    def checkpoint_folder(self, tiny_checkpoint: Callable[..., Path]) -> Path:
        return tiny_checkpoint("qwen2_vl")


class TestQwen25VLProcessor(ProcessorConformance):
    plugin = plugin
    options: ClassVar[Mapping[str, Mapping[str, JSON]]] = OPTIONS
    decode_options: ClassVar[Mapping[str, Mapping[str, JSON]]] = FEW_FRAMES

    @pytest.fixture
    def checkpoint_folder(self, tiny_checkpoint: Callable[..., Path]) -> Path:
        return tiny_checkpoint("qwen2_5_vl")


class TestQwen3VLProcessor(ProcessorConformance):
    plugin = plugin
    options: ClassVar[Mapping[str, Mapping[str, JSON]]] = OPTIONS
    decode_options: ClassVar[Mapping[str, Mapping[str, JSON]]] = FEW_FRAMES

    @pytest.fixture
    def checkpoint_folder(self, tiny_checkpoint: Callable[..., Path]) -> Path:
        return tiny_checkpoint("qwen3_vl")


class TestQwen2VLModel(ModelConformance):
    plugin = plugin

    @pytest.fixture
    def checkpoint_folder(self, tiny_checkpoint: Callable[..., Path]) -> Path:
        return tiny_checkpoint("qwen2_vl")


class TestQwen25VLModel(ModelConformance):
    """With videos so slow that their last step stands behind the text that follows them."""

    plugin = plugin

    def make_media(self, modality: str, number: int) -> bytes:
        return make_video(8 + number, fps=1) if modality == "video" and number == 1 else super().make_media(modality, number)

    @pytest.fixture
    def checkpoint_folder(self, tiny_checkpoint: Callable[..., Path]) -> Path:
        return tiny_checkpoint("qwen2_5_vl")


class TestPrunedQwen25VLModel(ModelConformance):
    plugin = plugin
    options: ClassVar[Mapping[str, Mapping[str, JSON]]] = {"video": {"video_pruning_rate": 0.6}}

    @pytest.fixture
    def checkpoint_folder(self, tiny_checkpoint: Callable[..., Path]) -> Path:
        return tiny_checkpoint("qwen2_5_vl")


class TestQwen3VLModel(ModelConformance):
    plugin = plugin

    @pytest.fixture
    def checkpoint_folder(self, tiny_checkpoint: Callable[..., Path]) -> Path:
        return tiny_checkpoint("qwen3_vl")


class SampledVideoConformance(MediaIOConformance):
    options: ClassVar[Mapping[str, JSON]] = {"fps": 5.0, "max_frames": 4}
    other_options: ClassVar[Mapping[str, JSON]] = {"num_frames": 6}
    family: ClassVar[str]

    @pytest.fixture(autouse=True)
    def _checkpoint(self, make_checkpoint: Callable[..., Checkpoint]) -> None:
        self.checkpoint = make_checkpoint(self.family)

    def make_io(self, options: Mapping[str, JSON], config: MediaConfig) -> VideoIO:
        media_io: VideoIO = video_io_factory(self.checkpoint)(options, config)
        return media_io

    def make_media(self) -> bytes:
        return make_video(95)

    def make_bomb(self) -> bytes:
        return make_video(9, width=1024, height=1024)

    def array_of(self, decoded: VideoFrames) -> np.ndarray[Any, Any]:
        return decoded.frames

    def check_truncated(self, decoded: VideoFrames) -> None:
        assert 0 < len(decoded.frames) == len(decoded.frame_indices) <= 6

    def check_decoded(self, decoded: VideoFrames, header: MediaHeader) -> None:
        assert (header.width, header.height, header.num_frames, header.total_num_frames) == (64, 48, 6, 95)
        assert decoded.frame_indices == header.frame_indices
        assert decoded.frames.shape == (6, 48, 64, 3)


class TestQwen2VLVideo(SampledVideoConformance):
    family = "qwen2_vl"


class TestQwen3VLVideo(SampledVideoConformance):
    family = "qwen3_vl"
