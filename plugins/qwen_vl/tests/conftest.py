"""Fixtures of the Qwen-VL tests: processors of configs, and tiny checkpoints with weights."""

from __future__ import annotations

import ast
import math
from collections.abc import Callable
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
import torch

from inset.checkpoint import Checkpoint, load_checkpoint
from inset.modeling.attention import register_paged_attention
from inset.modeling.interfaces import LoadOptions, ModelAdapter
from inset.modeling.loading import load_adapter
from inset.processing.processor import MultiModalProcessor
from inset.registry import ModelRegistry
from inset.testing.tiny_checkpoints import save_configs
from inset.testing.tiny_qwen_vl import QWEN_SPECIAL_TOKENS, QwenFamily, build_tiny_qwen_vl
from inset_qwen_vl import plugin

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from inset.inputs import ProcessedPrompt

MakeCheckpoint = Callable[..., Checkpoint]
MakeProcessor = Callable[..., MultiModalProcessor]

IMAGE, VIDEO = (QWEN_SPECIAL_TOKENS.index(token) for token in ("<|image_pad|>", "<|video_pad|>"))
FAMILIES: tuple[QwenFamily, ...] = ("qwen2_vl", "qwen2_5_vl", "qwen3_vl")


@pytest.fixture
def make_checkpoint(tmp_path: Path) -> MakeCheckpoint:
    """Writes the configs of a checkpoint without weights; parts of them can be replaced. The defaults are those of transformers."""

    def make(
        family: QwenFamily = "qwen2_vl",
        *,
        image: dict[str, Any] | None = None,
        video: dict[str, Any] | None = None,
        config: dict[str, Any] | None = None,
    ) -> Checkpoint:
        half = {"patch_size": 16, "image_mean": [0.5] * 3, "image_std": [0.5] * 3} if family == "qwen3_vl" else {}
        tokens = ("vision_start", "vision_end", "image", "video")
        configs: dict[str, Any] = {
            "config": {
                "model_type": family,
                "architectures": ["Qwen"],
                **{f"{name}_token_id": 3 + index for index, name in enumerate(tokens)},
                "vision_config": {"deepstack_visual_indexes": [0, 1], "tokens_per_second": 2},
                "text_config": {"hidden_size": 8, "max_position_embeddings": 32768},
                **(config or {}),
            },
            "preprocessor_config": {"image_processor_type": "Qwen2VLImageProcessor", **half, **(image or {})},
            "video_preprocessor_config": half if video is None else video,
        }
        folder = tmp_path / f"{family}-{len(list(tmp_path.iterdir()))}"
        return load_checkpoint(save_configs(folder, configs, special_tokens=QWEN_SPECIAL_TOKENS))

    return make


@pytest.fixture
def make_processor(
    make_checkpoint: MakeCheckpoint, make_plugin_processor: Callable[[ModuleType, Path], MultiModalProcessor]
) -> MakeProcessor:
    """Builds the processor of a checkpoint that `make_checkpoint` writes, or of one with weights."""

    def make(family: QwenFamily = "qwen2_vl", *, folder: Path | None = None, **parts: Any) -> MultiModalProcessor:
        return make_plugin_processor(plugin, folder or make_checkpoint(family, **parts).folder)

    return make


@pytest.fixture(scope="session")
def tiny_checkpoint(build_once: Callable[..., Path]) -> Callable[..., Path]:
    """Returns a function (family, options) -> folder of a random checkpoint with weights."""

    def make(family: QwenFamily, **options: Any) -> Path:
        return build_once(build_tiny_qwen_vl, family, **options)

    return make


class Reference:
    """The transformers model of one checkpoint, and what it answers to a processed prompt."""

    def __init__(self, folder: Path) -> None:
        from transformers import AutoModelForImageTextToText

        self.checkpoint = load_checkpoint(folder)
        self.model: Any = AutoModelForImageTextToText.from_pretrained(folder, dtype=torch.float32).eval()

    def inputs(self, prompt: ProcessedPrompt) -> dict[str, torch.Tensor]:
        """Returns what the checkpoint's processor of transformers would give."""
        ids = torch.tensor([list(prompt.prompt_token_ids)])
        kinds = (ids == IMAGE).int() + 2 * (ids == VIDEO).int()
        inputs = {"input_ids": ids, "attention_mask": torch.ones_like(ids), "mm_token_type_ids": kinds}
        for modality, name in (("image", "pixel_values"), ("video", "pixel_values_videos")):
            items = [item for item in prompt.mm_kwargs.get(modality, ()) if item is not None]
            if items:
                inputs[name] = torch.cat([self._pixels(modality, item[name]) for item in items])
                inputs[f"{modality}_grid_thw"] = torch.tensor(np.stack([item[f"{modality}_grid_thw"] for item in items]))
            if modality == "video" and items and self.checkpoint.model_type == "qwen2_5_vl":
                inputs["second_per_grid_ts"] = torch.tensor(np.concatenate([item["second_per_grid_ts"] for item in items]))
        return inputs

    def _pixels(self, modality: str, patches: NDArray[np.uint8]) -> torch.Tensor:
        config = self.checkpoint.preprocessor_config if modality == "image" else self.checkpoint.video_preprocessor_config
        mean, std = (np.array(config[name], np.float32) for name in ("image_mean", "image_std"))
        values = (patches.astype(np.float32) / 255 - mean) / std
        if values.ndim == 4:
            values = np.stack([values, values], axis=1)
        return torch.from_numpy(values.transpose(0, 4, 1, 2, 3).reshape(len(values), -1))

    def answer(self, prompt: ProcessedPrompt, max_tokens: int = 12) -> list[int]:
        """Returns what `generate` says, up to where its two best logits are too close to tell."""
        inputs = self.inputs(prompt)
        with torch.inference_mode():
            output = self.model.generate(
                **inputs,
                max_new_tokens=max_tokens,
                eos_token_id=None,
                do_sample=False,
                output_logits=True,
                return_dict_in_generate=True,
            )
        answer: list[int] = []
        for logits, token in zip(output.logits, output.sequences[0, inputs["input_ids"].shape[1] :].tolist(), strict=True):
            best = logits[0].topk(2).values
            if best[0] - best[1] < 1e-4:
                break
            answer.append(token)
        return answer


@pytest.fixture(scope="session", autouse=True)
def _one_thread() -> None:
    torch.set_num_threads(1)


@pytest.fixture(scope="session")
def reference(tiny_checkpoint: Callable[..., Path]) -> Callable[..., Reference]:
    """Returns a function (family, options) -> `Reference` of that checkpoint; loaded once."""
    made: dict[Path, Reference] = {}

    def make(family: QwenFamily, **options: Any) -> Reference:
        folder = tiny_checkpoint(family, **options)
        if folder not in made:
            made[folder] = Reference(folder)
        return made[folder]

    return make


@pytest.fixture(scope="session")
def load_qwen(tiny_checkpoint: Callable[..., Path]) -> Callable[..., ModelAdapter]:
    """Returns a function (family, options) -> the adapter of that checkpoint, or of a folder that is given."""

    def load(family: QwenFamily, *, folder: Path | None = None, dtype: torch.dtype = torch.float32, **options: Any) -> ModelAdapter:
        checkpoint = load_checkpoint(folder or tiny_checkpoint(family, **options))
        registry = ModelRegistry()
        plugin.register_models(registry)
        target = registry.get(checkpoint.architecture).adapter
        return load_adapter(target, checkpoint, LoadOptions(torch.device("cpu"), dtype, register_paged_attention()))

    return load


_VIDEO_SOURCES = {
    "Qwen2VLVideoProcessor": "models/qwen2_vl/video_processing_qwen2_vl.py",
    "Qwen3VLVideoProcessor": "models/qwen3_vl/video_processing_qwen3_vl.py",
}


@pytest.fixture(scope="session")
def take_function() -> Callable[[str, str], Any]:
    """Returns a function (class, name) -> a function or method of transformers' video processors, `self` first.

    It is taken from the installed source, because the classes cannot be imported without torchvision.
    """
    import transformers

    def take(kind: str, name: str) -> Any:
        tree = ast.parse((Path(transformers.__file__).parent / _VIDEO_SOURCES[kind]).read_text("utf-8"))
        [function] = [node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef) and node.name == name]
        function.decorator_list, function.returns = [], None
        for argument in (*function.args.args, *function.args.kwonlyargs, *filter(None, [function.args.kwarg])):
            argument.annotation = None
        logger = SimpleNamespace(warning_once=lambda message: None)
        scope: dict[str, Any] = {"math": math, "np": np, "torch": torch, "logger": logger}
        exec(compile(ast.Module([function], []), name, "exec"), scope)  # noqa: S102 - the installed library's own code
        return scope[name]

    return take
