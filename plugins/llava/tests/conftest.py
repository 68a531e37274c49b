"""Fixtures of the LLaVA tests: checkpoint folders with and without weights."""

from __future__ import annotations

import copy
import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import tokenizers

from inset.checkpoint import Checkpoint, load_checkpoint
from inset.media.executor import MediaExecutor
from inset.media.image import ImageIO
from inset.processing.processor import MultiModalProcessor
from inset.processing.registry import build_processor
from inset.registry import ProcessorRegistry
from inset.testing.tiny_checkpoints import build_tiny_llava, build_tiny_llava_next
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


@pytest.fixture(scope="session")
def tokenizer_json() -> str:
    tokenizer = tokenizers.Tokenizer(tokenizers.models.BPE())
    tokenizer.pre_tokenizer = tokenizers.pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = tokenizers.decoders.ByteLevel()
    alphabet = sorted(tokenizers.pre_tokenizers.ByteLevel.alphabet())
    tokenizer.train_from_iterator([], tokenizers.trainers.BpeTrainer(vocab_size=256, initial_alphabet=alphabet, show_progress=False))
    tokenizer.add_special_tokens(["<s>", "</s>", "<image>"])
    return str(tokenizer.to_str())


@pytest.fixture
def make_checkpoint(tmp_path: Path, tokenizer_json: str) -> MakeCheckpoint:
    """Writes the configs and the tokenizer of a checkpoint; keyword arguments replace parts of them."""

    def make(
        model_type: str = "llava",
        *,
        preprocessor: dict[str, Any] | None = None,
        processor: dict[str, Any] | None = None,
        vision: dict[str, Any] | None = None,
        config: dict[str, Any] | None = None,
    ) -> Checkpoint:
        folder = tmp_path / f"{model_type}-{len(list(tmp_path.iterdir()))}"
        folder.mkdir()
        (folder / "tokenizer.json").write_text(tokenizer_json)
        files: dict[str, Any] = {
            "config": {
                "model_type": model_type,
                "architectures": ["Llava"],
                "image_token_index": 258,
                "vision_config": {"model_type": "clip_vision_model", "image_size": 336, "patch_size": 14, **(vision or {})},
                "text_config": {"model_type": "llama", "hidden_size": 8},
                **(config or {}),
            },
            "preprocessor_config": preprocessor or (_NEXT if model_type == "llava_next" else _CLIP),
            "processor_config": {"patch_size": 14, "num_additional_image_tokens": 1, "vision_feature_select_strategy": "default"}
            if processor is None
            else processor,
        }
        for name, value in files.items():
            (folder / f"{name}.json").write_text(json.dumps(value))
        return load_checkpoint(folder)

    return make


@pytest.fixture
def pool() -> Iterator[MediaExecutor]:
    with MediaExecutor(image_threads=2, video_threads=1) as executor:
        yield executor


@pytest.fixture
def make_processor(make_checkpoint: MakeCheckpoint, pool: MediaExecutor) -> MakeProcessor:
    """Builds the processor of a checkpoint that `make_checkpoint` writes."""

    def make(model_type: str = "llava", **parts: Any) -> MultiModalProcessor:
        registry = ProcessorRegistry()
        plugin.register_processors(registry)
        checkpoint = make_checkpoint(model_type, **parts)
        return build_processor(registry, checkpoint, media_io_factories={"image": ImageIO}, pool=pool).processor

    return make


@pytest.fixture(scope="session")
def tiny_checkpoint(tmp_path_factory: pytest.TempPathFactory) -> Callable[..., Path]:
    """Returns a function (family, options) -> folder of a random checkpoint with weights; equal options give the same folder."""
    made: dict[str, Path] = {}

    def make(family: str, **options: Any) -> Path:
        name = f"{family}-{sorted(options.items())}"
        if name not in made:
            build = build_tiny_llava if family == "llava" else build_tiny_llava_next
            made[name] = build(tmp_path_factory.mktemp(family), **options)
        return made[name]

    return make
