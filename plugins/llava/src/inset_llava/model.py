"""LLaVA 1.5 and LLaVA-NeXT as the worker sees them: adapters around the transformers modules."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Hashable, Mapping, Sequence
from typing import Any, Self

import torch

from inset.api import (
    AttentionLayerSpec,
    Checkpoint,
    ConfigError,
    ItemTensors,
    LoadOptions,
    ModelAdapter,
    build_module,
    load_weights,
    own_attention,
    read_attention_layers,
)
from inset_llava.config import read_image_config
from inset_llava.vision import PixelNormalizer, drop_unused_layers

__all__ = ["LlavaAdapter", "LlavaNextAdapter"]

# Name at the beginning in a file -> in the module. Hub files predate the common `model.` in front, and keep the tower's `vision_model`.
_PREFIXES = (
    ("language_model.lm_head.", "lm_head."),
    ("language_model.model.", "model.language_model."),
    ("language_model.", "model.language_model."),
    ("vision_tower.", "model.vision_tower."),
    ("multi_modal_projector.", "model.multi_modal_projector."),
    ("image_newline", "model.image_newline"),
)


class _LlavaBase(ModelAdapter):
    """What both families share: vision tower, projector, and a text model of any architecture."""

    def __init__(self, module: Any, normalizer: PixelNormalizer) -> None:
        self._module = module
        self._normalizer = normalizer
        self._text_model = module.model.language_model
        self._layers = read_attention_layers(module.config.text_config)

    @classmethod
    @abstractmethod
    def _classes(cls) -> tuple[type[Any], type[Any]]:
        """Returns the transformers config and model class; imported when a checkpoint is loaded."""

    @classmethod
    def load(cls, checkpoint: Checkpoint, options: LoadOptions) -> Self:
        """Builds the transformers module and loads the safetensors weights; see `ModelAdapter.load`."""
        config_class, model_class = cls._classes()
        try:
            config = config_class.from_dict(dict(checkpoint.config))
        except (ValueError, TypeError, KeyError) as error:
            raise ConfigError(f"config.json of the checkpoint {checkpoint.folder.name!r} cannot be read: {error}") from error
        module = build_module(model_class, config, options)
        load_weights(module, checkpoint, options, candidates=_candidates)
        drop_unused_layers(module)
        return cls(module, PixelNormalizer(read_image_config(checkpoint), device=options.device, dtype=options.dtype))

    @property
    def text_model(self) -> Any:
        """The transformers text model."""
        return self._text_model

    @property
    def hidden_size(self) -> int:
        """Width of the text model's embeddings."""
        return int(self._module.config.text_config.hidden_size)

    @property
    def attention_layers(self) -> Sequence[AttentionLayerSpec]:
        """The decoder layers."""
        return self._layers

    def embed_input_ids(self, input_ids: torch.Tensor) -> torch.Tensor:
        """Returns ``(num_tokens, hidden_size)`` embeddings of ``(num_tokens,)`` token ids."""
        embeddings: torch.Tensor = self._text_model.get_input_embeddings()(input_ids)
        return embeddings

    def forward(
        self,
        inputs_embeds: torch.Tensor,
        position_ids: torch.Tensor,
        *,
        layer_embeds: torch.Tensor | None = None,
    ) -> torch.Tensor:
        """Runs the text model over a packed batch; see `ModelAdapter.forward`."""
        output = self._text_model(inputs_embeds=inputs_embeds, position_ids=position_ids, use_cache=False)
        hidden_states: torch.Tensor = output.last_hidden_state[0]
        return hidden_states

    def compute_logits(self, hidden_states: torch.Tensor) -> torch.Tensor:
        """Returns ``(num_rows, vocab_size)`` logits of ``(num_rows, hidden_size)`` hidden states."""
        logits: torch.Tensor = self._module.lm_head(hidden_states)
        return logits

    def plain_forward(self, input_ids: torch.Tensor) -> torch.Tensor:
        """Returns ``(num_tokens, vocab_size)`` logits of a text prompt by the module's own attention."""
        with own_attention(self._text_model):
            output = self._text_model(input_ids=input_ids[None], use_cache=False)
        return self.compute_logits(output.last_hidden_state[0])


class LlavaAdapter(_LlavaBase):
    """LLaVA 1.5: one picture of fixed size per image; its item is ``pixel_values (height, width, 3)`` uint8."""

    @classmethod
    def _classes(cls) -> tuple[type[Any], type[Any]]:
        from transformers.models.llava.configuration_llava import LlavaConfig
        from transformers.models.llava.modeling_llava import LlavaForConditionalGeneration

        return LlavaConfig, LlavaForConditionalGeneration

    def encode(self, modality: str, items: Sequence[Mapping[str, torch.Tensor]]) -> Sequence[torch.Tensor]:
        """Returns ``(num_embeds, hidden_size)`` embeddings of each image; see `ModelAdapter.encode`."""
        pixels = self._normalizer.normalize(torch.stack([item["pixel_values"] for item in items]))
        return list(self._module.model.get_image_features(pixel_values=pixels, return_dict=True).pooler_output)


class LlavaNextAdapter(_LlavaBase):
    """LLaVA-NeXT: an overview and tiles per image.

    Its item is ``pixel_values (num_tiles, height, width, 3)`` uint8, the overview first, and ``image_sizes (2,)`` int64: (height, width) of
    the original image.
    """

    @classmethod
    def _classes(cls) -> tuple[type[Any], type[Any]]:
        from transformers.models.llava_next.configuration_llava_next import LlavaNextConfig
        from transformers.models.llava_next.modeling_llava_next import LlavaNextForConditionalGeneration

        return LlavaNextConfig, LlavaNextForConditionalGeneration

    def encoder_batch_key(self, modality: str, item: ItemTensors) -> Hashable:
        """Returns the size of a tile: images of any number of tiles run together."""
        return (modality, item["pixel_values"].shape[1:])

    def encode(self, modality: str, items: Sequence[Mapping[str, torch.Tensor]]) -> Sequence[torch.Tensor]:
        """Returns ``(num_embeds, hidden_size)`` embeddings of each image; see `ModelAdapter.encode`."""
        pixels = self._normalizer.normalize(torch.cat([item["pixel_values"] for item in items]))
        sizes = torch.stack([item["image_sizes"] for item in items])
        features = self._module.model.get_image_features(pixel_values=pixels, image_sizes=sizes, return_dict=True)
        return list(features.pooler_output)


def _candidates(name: str) -> Sequence[str]:
    """Returns the names that a tensor of a file can have in the module: with and without the tower's ``vision_model``."""
    renamed = next((new + name.removeprefix(old) for old, new in _PREFIXES if name.startswith(old)), name)
    shorter = renamed.replace("model.vision_tower.vision_model.", "model.vision_tower.")
    longer = shorter.replace("model.vision_tower.", "model.vision_tower.vision_model.")
    return (renamed, shorter, longer)
