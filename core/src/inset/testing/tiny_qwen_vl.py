"""Tiny Qwen-VL checkpoints with random weights, saved to a folder: what tests and demonstrations run instead of a real model."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final, Literal

from inset.testing.tiny_checkpoints import save_byte_tokenizer

__all__ = ["QWEN_CHAT_TEMPLATE", "QWEN_SPECIAL_TOKENS", "QwenFamily", "build_tiny_qwen_vl"]

QwenFamily = Literal["qwen2_vl", "qwen2_5_vl", "qwen3_vl"]

QWEN_CHAT_TEMPLATE: Final = (
    "{% for message in messages %}<|im_start|>{{ message['role'] }}\n"
    "{% if message['content'] is string %}{{ message['content'] }}{% else %}{% for part in message['content'] %}"
    "{% if part['type'] == 'image' %}<|vision_start|><|image_pad|><|vision_end|>"
    "{% elif part['type'] == 'video' %}<|vision_start|><|video_pad|><|vision_end|>"
    "{% elif part['type'] == 'text' %}{{ part['text'] }}{% endif %}{% endfor %}{% endif %}<|im_end|>\n"
    "{% endfor %}{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)
"""A template that reads content as a list, like that of the real checkpoints."""

QWEN_SPECIAL_TOKENS: Final = (
    "<pad>",
    "<s>",
    "</s>",
    "<|vision_start|>",
    "<|vision_end|>",
    "<|image_pad|>",
    "<|video_pad|>",
    "<|im_start|>",
    "<|im_end|>",
)
"""Their ids count up from 0; the bytes follow."""

_CLASSES: Final = {"qwen2_vl": "Qwen2VL", "qwen2_5_vl": "Qwen2_5_VL", "qwen3_vl": "Qwen3VL"}
_VISION: Final[dict[str, dict[str, Any]]] = {
    "qwen2_vl": {"depth": 2, "embed_dim": 32, "hidden_size": 64, "num_heads": 4, "mlp_ratio": 2},
    "qwen2_5_vl": {
        "depth": 3,
        "hidden_size": 32,
        "intermediate_size": 64,
        "num_heads": 4,
        "out_hidden_size": 64,
        "window_size": 56,
        "fullatt_block_indexes": [1],
        "tokens_per_second": 2,
    },
    "qwen3_vl": {
        "depth": 3,
        "hidden_size": 32,
        "intermediate_size": 64,
        "num_heads": 4,
        "out_hidden_size": 64,
        "patch_size": 16,
        "num_position_embeddings": 64,
        "deepstack_visual_indexes": [0, 1],
    },
}
_CLIP: Final = {"image_mean": [0.48145466, 0.4578275, 0.40821073], "image_std": [0.26862954, 0.26130258, 0.27577711]}
_HALF: Final = {"image_mean": [0.5, 0.5, 0.5], "image_std": [0.5, 0.5, 0.5]}


def build_tiny_qwen_vl(
    folder: Path,
    family: QwenFamily,
    *,
    text_config: Mapping[str, Any] | None = None,
    layout: Literal["hub", "transformers"] = "hub",
    initializer_range: float = 0.2,
    seed: int = 0,
) -> Path:
    """Saves a checkpoint of a few thousand parameters: config, tokenizer, processor files and weights.

    An image has at most 64 tokens, a frame of a video at most 16; one token is a square of 28 pixels, and of 32 for Qwen3-VL.

    Args:
        folder: Where to; made where it does not exist.
        family: The ``model_type``.
        text_config: Changes to the text model's config, such as ``{"tie_word_embeddings": True}``.
        layout: Names of the tensors: those of checkpoints on the hub, or the module's own.
        initializer_range: Spread of the weights.
        seed: Of the weights.

    Returns:
        The folder.
    """
    import transformers

    config = getattr(transformers, f"{_CLASSES[family]}Config")(
        text_config=_text_config(family, initializer_range, text_config or {}),
        vision_config={"patch_size": 14, "initializer_range": initializer_range, **_VISION[family]},
        tie_word_embeddings=bool((text_config or {}).get("tie_word_embeddings")),
        **{name: QWEN_SPECIAL_TOKENS.index(token) for name, token in _TOKEN_NAMES.items()},
    )
    _save_model(f"{_CLASSES[family]}ForConditionalGeneration", config, folder, layout, initializer_range, seed)
    _save_processors(folder, family)
    save_byte_tokenizer(folder, special_tokens=QWEN_SPECIAL_TOKENS, chat_template=QWEN_CHAT_TEMPLATE)
    return folder


_TOKEN_NAMES: Final = {
    "image_token_id": "<|image_pad|>",
    "video_token_id": "<|video_pad|>",
    "vision_start_token_id": "<|vision_start|>",
    "vision_end_token_id": "<|vision_end|>",
}


def _text_config(family: QwenFamily, initializer_range: float, changes: Mapping[str, Any]) -> dict[str, Any]:
    interleaved = {"mrope_interleaved": True} if family == "qwen3_vl" else {}
    return {
        "hidden_size": 64,
        "intermediate_size": 128,
        "num_hidden_layers": 3,
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
        **({"head_dim": 16} if family == "qwen3_vl" else {}),
        "vocab_size": 320,
        "max_position_embeddings": 4096,
        "initializer_range": initializer_range,
        "rope_parameters": {"rope_type": "default", "rope_theta": 10000.0, "mrope_section": [2, 3, 3], **interleaved},
        "bos_token_id": 1,
        "eos_token_id": 2,
        "pad_token_id": 0,
        **changes,
    }


def _save_model(name: str, config: Any, folder: Path, layout: str, initializer_range: float, seed: int) -> None:
    import torch
    import transformers
    from safetensors.torch import save_file

    folder.mkdir(parents=True, exist_ok=True)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        model = getattr(transformers, name)(config).eval()
        for parameter in model.parameters():
            if parameter.dim() > 1:
                torch.nn.init.normal_(parameter, std=initializer_range)
    is_old = layout == "hub" and config.model_type != "qwen3_vl"
    tensors = {
        (_hub_name(tensor_name) if is_old else tensor_name): tensor.detach().clone().contiguous()
        for tensor_name, tensor in model.state_dict().items()
        if not (config.tie_word_embeddings and tensor_name == "lm_head.weight")
    }
    save_file(tensors, folder / "model.safetensors", metadata={"format": "pt"})
    config.architectures = [name]
    config.dtype = torch.float32
    config.save_pretrained(folder)
    _write(folder / "generation_config.json", {"bos_token_id": 1, "eos_token_id": 2, "pad_token_id": 0})


def _hub_name(name: str) -> str:
    """Qwen2-VL and Qwen2.5-VL stand on the hub without the module's common `model.` in front."""
    return name.replace("model.visual.", "visual.", 1).replace("model.language_model.", "model.", 1)


def _save_processors(folder: Path, family: QwenFamily) -> None:
    patch_size = _VISION[family].get("patch_size", 14)
    square = (2 * patch_size) ** 2
    is_third = family == "qwen3_vl"
    common = {"patch_size": patch_size, "merge_size": 2, "temporal_patch_size": 2, "resample": 3, **(_HALF if is_third else _CLIP)}
    _write(
        folder / "preprocessor_config.json",
        {"image_processor_type": "Qwen2VLImageProcessorFast", "size": {"shortest_edge": 4 * square, "longest_edge": 64 * square}, **common},
    )
    most = 256 if is_third else 16  # tokens of all frames together, or of one
    _write(
        folder / "video_preprocessor_config.json",
        {
            "video_processor_type": "Qwen3VLVideoProcessor" if is_third else "Qwen2VLVideoProcessor",
            "size": {"shortest_edge": 4 * square, "longest_edge": most * square},
            "fps": 2,
            "min_frames": 4,
            "max_frames": 32,
            **common,
        },
    )
    _write(folder / "processor_config.json", {"processor_class": f"{_CLASSES[family]}Processor"})


def _write(path: Path, value: Mapping[str, Any]) -> None:
    path.write_text(json.dumps(value, indent=2), "utf-8")
