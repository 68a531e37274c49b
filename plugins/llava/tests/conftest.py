"""Fixtures of the LLaVA tests: checkpoint folders with and without weights."""

from __future__ import annotations

import copy
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from inset.checkpoint import Checkpoint, load_checkpoint
from inset.processing.processor import MultiModalProcessor
from inset.testing.tiny_checkpoints import build_tiny_llava, build_tiny_llava_next, save_configs
from inset_llava import plugin

MakeCheckpoint = Callable[..., Checkpoint]
MakeProcessor = Callable[..., MultiModalProcessor]

_CLIP: dict[str, Any] = {
    "image_processor_type": "CLIPImageProcessor",
    "size": {"shortest_edge": 336},
    "crop_size": {"height": 336, "width": 336},
    "do_center_crop": True,
    "do_normalize": True,
    "do_rescale": True,
    "do_resize": True,
    "rescale_factor": 1 / 255,
    "resample": 3,
    "image_mean": [0.48145466, 0.4578275, 0.40821073],
    "image_std": [0.26862954, 0.26130258, 0.27577711],
}
_SIGLIP: dict[str, Any] = {
    "image_processor_type": "SiglipImageProcessor",
    "size": {"height": 384, "width": 384},
    "image_mean": [0.5] * 3,
    "image_std": [0.5] * 3,
    "resample": 3,
}
_NEXT: dict[str, Any] = {
    **_CLIP,
    "image_processor_type": "LlavaNextImageProcessor",
    "image_grid_pinpoints": [[336, 672], [672, 336], [672, 672], [1008, 336], [336, 1008]],
}


@pytest.fixture
def preprocessor_configs() -> dict[str, dict[str, Any]]:
    """Preprocessor configs as hub checkpoints have them: clip, siglip, llava (which can pad to a square) and next."""
    llava = {**_CLIP, "image_processor_type": "LlavaImageProcessor", "do_pad": True}
    return copy.deepcopy({"clip": _CLIP, "siglip": _SIGLIP, "llava": llava, "next": _NEXT})


@pytest.fixture
def make_checkpoint(tmp_path: Path) -> MakeCheckpoint:
    """Writes the configs and the tokenizer of a checkpoint; keyword arguments replace parts of them."""

    def make(
        model_type: str = "llava",
        *,
        preprocessor: dict[str, Any] | None = None,
        processor: dict[str, Any] | None = None,
        vision: dict[str, Any] | None = None,
        config: dict[str, Any] | None = None,
    ) -> Checkpoint:
        configs: dict[str, Any] = {
            "config": {
                "model_type": model_type,
                "architectures": ["Llava"],
                "image_token_index": 3,
                "vision_config": {"model_type": "clip_vision_model", "image_size": 336, "patch_size": 14, **(vision or {})},
                "text_config": {"model_type": "llama", "hidden_size": 8},
                **(config or {}),
            },
            "preprocessor_config": preprocessor or (_NEXT if model_type == "llava_next" else _CLIP),
            "processor_config": {"patch_size": 14, "num_additional_image_tokens": 1, "vision_feature_select_strategy": "default"}
            if processor is None
            else processor,
        }
        return load_checkpoint(save_configs(tmp_path / f"{model_type}-{len(list(tmp_path.iterdir()))}", configs))

    return make


@pytest.fixture
def make_processor(
    make_checkpoint: MakeCheckpoint, make_plugin_processor: Callable[[ModuleType, Path], MultiModalProcessor]
) -> MakeProcessor:
    """Builds the processor of a checkpoint that `make_checkpoint` writes."""

    def make(model_type: str = "llava", **parts: Any) -> MultiModalProcessor:
        return make_plugin_processor(plugin, make_checkpoint(model_type, **parts).folder)

    return make


@pytest.fixture(scope="session")
def tiny_checkpoint(build_once: Callable[..., Path]) -> Callable[..., Path]:
    """Returns a function (family, options) -> folder of a random checkpoint with weights."""

    def make(family: str, **options: Any) -> Path:
        return build_once(build_tiny_llava if family == "llava" else build_tiny_llava_next, **options)

    return make
