"""Tiny checkpoints with random weights, saved to a folder: what tests and demonstrations run instead of a real model.

The weights are drawn with a large spread, so that answers differ and a wrong picture shows. torch and transformers are imported when a
checkpoint is built.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Literal

if TYPE_CHECKING:
    import torch

__all__ = ["CHAT_TEMPLATE", "build_tiny_llava", "build_tiny_llava_next", "save_byte_tokenizer", "save_configs"]

CHAT_TEMPLATE: Final = (
    "{% for message in messages %}{{ message['role'] | upper }}: "
    "{% if message['content'] is string %}{{ message['content'] }}{% else %}"
    "{% for part in message['content'] if part['type'] == 'image' %}<image>\n{% endfor %}"
    "{% for part in message['content'] if part['type'] == 'text' %}{{ part['text'] }}{% endfor %}{% endif %} "
    "{% endfor %}{% if add_generation_prompt %}ASSISTANT:{% endif %}"
)
"""A LLaVA-like template: pictures first, then the text of each message."""

_SPECIAL_TOKENS: Final = ("<pad>", "<s>", "</s>", "<image>")
_VOCAB_SIZE: Final = 320
_MEAN: Final = [0.48145466, 0.4578275, 0.40821073]
_STD: Final = [0.26862954, 0.26130258, 0.27577711]

Tower = Literal["clip", "siglip"]
Layout = Literal["hub", "transformers"]


def build_tiny_llava(
    folder: Path,
    *,
    tower: Tower = "clip",
    layout: Layout = "hub",
    text_config: Mapping[str, Any] | None = None,
    vision_config: Mapping[str, Any] | None = None,
    vision_feature_layer: int | Sequence[int] = -2,
    vision_feature_select_strategy: Literal["default", "full"] | None = None,
    initializer_range: float = 0.2,
    seed: int = 0,
) -> Path:
    """Saves a LLaVA 1.5 checkpoint of a few thousand parameters: config, tokenizer, processor files and weights.

    A picture has 56 x 56 pixels and 16 patches; with a CLIP tower and the strategy ``full`` its class row makes 17 embeddings.

    Args:
        folder: Where to; made where it does not exist.
        tower: The vision tower.
        layout: Names of the tensors: those of checkpoints on the hub, or those that transformers 5 saves.
        text_config: Changes to the text model's config, such as ``{"model_type": "qwen2"}``.
        vision_config: Changes to the tower's config.
        vision_feature_layer: Which hidden states of the tower are used.
        vision_feature_select_strategy: ``default`` drops the class row, which only CLIP has; chosen by the tower when None.
        initializer_range: Spread of the weights.
        seed: Of the weights.

    Returns:
        The folder.
    """
    from transformers import LlavaConfig, LlavaForConditionalGeneration

    strategy = vision_feature_select_strategy or ("default" if tower == "clip" else "full")
    layers = vision_feature_layer if isinstance(vision_feature_layer, int) else list(vision_feature_layer)
    config = LlavaConfig(
        vision_config=_vision_config(tower, initializer_range, vision_config),
        text_config=_text_config(initializer_range, text_config),
        image_token_index=_SPECIAL_TOKENS.index("<image>"),
        image_seq_length=16,
        vision_feature_layer=layers,
        vision_feature_select_strategy=strategy,
    )
    _save_model(LlavaForConditionalGeneration, config, folder, layout, initializer_range, seed)
    _save_processor(folder, "LlavaProcessor", "CLIPImageProcessor", tower, strategy, {"do_pad": False})
    return folder


def build_tiny_llava_next(
    folder: Path,
    *,
    tower: Tower = "clip",
    layout: Layout = "hub",
    text_config: Mapping[str, Any] | None = None,
    image_grid_pinpoints: Sequence[Sequence[int]] = ((28, 56), (56, 28), (56, 56), (84, 28), (28, 84)),
    initializer_range: float = 0.2,
    seed: int = 0,
) -> Path:
    """Saves a LLaVA-NeXT checkpoint of a few thousand parameters, with tiles of 28 x 28 pixels and 4 patches.

    Args:
        folder: Where to; made where it does not exist.
        tower: The vision tower.
        layout: As in `build_tiny_llava`.
        text_config: As in `build_tiny_llava`.
        image_grid_pinpoints: (height, width) of the tile grids, in pixels.
        initializer_range: Spread of the weights.
        seed: Of the weights.

    Returns:
        The folder.
    """
    from transformers import LlavaNextConfig, LlavaNextForConditionalGeneration

    pinpoints = [list(pair) for pair in image_grid_pinpoints]
    strategy = "default" if tower == "clip" else "full"
    config = LlavaNextConfig(
        vision_config=_vision_config(tower, initializer_range, {"image_size": 28}),
        text_config=_text_config(initializer_range, text_config),
        image_token_index=_SPECIAL_TOKENS.index("<image>"),
        image_grid_pinpoints=pinpoints,
        vision_feature_layer=-2,
        vision_feature_select_strategy=strategy,
    )
    _save_model(LlavaNextForConditionalGeneration, config, folder, layout, initializer_range, seed)
    tiles = {"image_grid_pinpoints": pinpoints, "do_pad": True, "size": {"shortest_edge": 28}, "crop_size": {"height": 28, "width": 28}}
    _save_processor(folder, "LlavaNextProcessor", "LlavaNextImageProcessor", tower, strategy, tiles)
    return folder


def save_byte_tokenizer(folder: Path, *, special_tokens: Sequence[str] = _SPECIAL_TOKENS, chat_template: str = CHAT_TEMPLATE) -> None:
    """Saves a tokenizer with one token per byte behind the special tokens, and a chat template.

    Args:
        folder: Where to.
        special_tokens: ``<pad>``, ``<s>`` and ``</s>`` must be among them; their ids count up from 0.
        chat_template: Jinja text.
    """
    from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers

    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    vocab = {token: index for index, token in enumerate([*special_tokens, *alphabet])}
    tokenizer = Tokenizer(models.BPE(vocab=vocab, merges=[]))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.add_special_tokens([AddedToken(token, special=True, normalized=False) for token in special_tokens])
    tokenizer.save(str(folder / "tokenizer.json"))
    _write(
        folder / "tokenizer_config.json",
        {
            "tokenizer_class": "PreTrainedTokenizerFast",
            "bos_token": "<s>",
            "eos_token": "</s>",
            "pad_token": "<pad>",
            "model_max_length": 4096,
            "clean_up_tokenization_spaces": False,
        },
    )
    (folder / "chat_template.jinja").write_text(chat_template, "utf-8")


def save_configs(
    folder: Path,
    configs: Mapping[str, Mapping[str, Any]],
    *,
    special_tokens: Sequence[str] = _SPECIAL_TOKENS,
    chat_template: str = CHAT_TEMPLATE,
) -> Path:
    """Saves a checkpoint without weights: enough for a processor, and made in no time.

    Args:
        folder: Where to; made where it does not exist.
        configs: Name of a file without its ``.json`` -> what it holds, such as ``{"config": {...}, "preprocessor_config": {...}}``.
        special_tokens: As in `save_byte_tokenizer`.
        chat_template: Jinja text.

    Returns:
        The folder.
    """
    folder.mkdir(parents=True, exist_ok=True)
    save_byte_tokenizer(folder, special_tokens=special_tokens, chat_template=chat_template)
    for name, config in configs.items():
        _write(folder / f"{name}.json", config)
    return folder


def _vision_config(tower: Tower, initializer_range: float, changes: Mapping[str, Any] | None) -> dict[str, Any]:
    return {
        "model_type": f"{tower}_vision_model",
        "hidden_size": 32,
        "intermediate_size": 64,
        "num_hidden_layers": 3,
        "num_attention_heads": 4,
        "image_size": 56,
        "patch_size": 14,
        "initializer_range": initializer_range,
        **({"projection_dim": 32} if tower == "clip" else {"vision_use_head": False}),
        **(changes or {}),
    }


def _text_config(initializer_range: float, changes: Mapping[str, Any] | None) -> dict[str, Any]:
    return {
        "model_type": "llama",
        "hidden_size": 64,
        "intermediate_size": 128,
        "num_hidden_layers": 2,
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
        "vocab_size": _VOCAB_SIZE,
        "max_position_embeddings": 4096,
        "initializer_range": initializer_range,
        "bos_token_id": _SPECIAL_TOKENS.index("<s>"),
        "eos_token_id": _SPECIAL_TOKENS.index("</s>"),
        "pad_token_id": _SPECIAL_TOKENS.index("<pad>"),
        **(changes or {}),
    }


def _save_model(model_class: Any, config: Any, folder: Path, layout: Layout, initializer_range: float, seed: int) -> None:
    import torch
    from safetensors.torch import save_file

    folder.mkdir(parents=True, exist_ok=True)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        model = model_class(config).eval()
        for parameter in model.parameters():
            if parameter.dim() > 1:
                torch.nn.init.normal_(parameter, std=initializer_range)
    tied = bool(config.text_config.tie_word_embeddings)
    tensors = {
        (_hub_name(name) if layout == "hub" else name): _own_memory(tensor)
        for name, tensor in model.state_dict().items()
        if not (tied and name == "lm_head.weight")
    }
    save_file(tensors, folder / "model.safetensors", metadata={"format": "pt"})
    config.architectures = [model_class.__name__]
    config.dtype = torch.float32
    config.save_pretrained(folder)
    end = {"bos_token_id": 1, "eos_token_id": 2, "pad_token_id": 0}
    _write(folder / "generation_config.json", end)
    save_byte_tokenizer(folder)


def _own_memory(tensor: torch.Tensor) -> torch.Tensor:
    return tensor.detach().clone().contiguous()


def _hub_name(name: str) -> str:
    for new, old in (
        ("model.language_model.", "language_model.model."),
        ("lm_head.", "language_model.lm_head."),
        ("model.vision_tower.vision_model.", "vision_tower.vision_model."),
        ("model.vision_tower.", "vision_tower.vision_model."),
        ("model.", ""),
    ):
        if name.startswith(new):
            return old + name.removeprefix(new)
    return name


def _save_processor(folder: Path, processor: str, image_processor: str, tower: Tower, strategy: str, changes: Mapping[str, Any]) -> None:
    _write(
        folder / "preprocessor_config.json",
        {
            "image_processor_type": image_processor,
            "do_convert_rgb": True,
            "do_resize": True,
            "size": {"shortest_edge": 56},
            "resample": 3,
            "do_center_crop": True,
            "crop_size": {"height": 56, "width": 56},
            "do_rescale": True,
            "rescale_factor": 1 / 255,
            "do_normalize": True,
            "image_mean": _MEAN,
            "image_std": _STD,
            **changes,
        },
    )
    _write(
        folder / "processor_config.json",
        {
            "processor_class": processor,
            "image_token": "<image>",
            "patch_size": 14,
            "vision_feature_select_strategy": strategy,
            "num_additional_image_tokens": 1 if tower == "clip" else 0,
        },
    )


def _write(path: Path, value: Mapping[str, Any]) -> None:
    path.write_text(json.dumps(value, indent=2), "utf-8")
