"""LLaVA 1.5 and LLaVA-NeXT as the worker sees them: adapters around the transformers modules."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Hashable, Mapping, Sequence
from typing import Any, Self

import torch

from inset.api import (
    Checkpoint,
    ItemTensors,
    LoadOptions,
    TransformersAdapter,
    build_module,
    load_weights,
    read_config,
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


class _LlavaBase(TransformersAdapter):
    """What both families share: vision tower, projector, and a text model of any architecture."""

    def __init__(self, module: Any, normalizer: PixelNormalizer) -> None:
        super().__init__(module)
        self._normalizer = normalizer

    @classmethod
    @abstractmethod
    def _classes(cls) -> tuple[type[Any], type[Any]]:
        """Returns the transformers config and model class; imported when a checkpoint is loaded."""

    @classmethod
    def load(cls, checkpoint: Checkpoint, options: LoadOptions) -> Self:
        """Builds the transformers module and loads the safetensors weights; see `ModelAdapter.load`."""
        config_class, model_class = cls._classes()
        module = build_module(model_class, read_config(config_class, checkpoint), options)
        load_weights(module, checkpoint, options, candidates=_candidates)
        drop_unused_layers(module)
        return cls(module, PixelNormalizer(read_image_config(checkpoint), device=options.device, dtype=options.dtype))


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
        return list(self.module.model.get_image_features(pixel_values=pixels, return_dict=True).pooler_output)


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
        features = self.module.model.get_image_features(pixel_values=pixels, image_sizes=sizes, return_dict=True)
        return list(features.pooler_output)


def _candidates(name: str) -> Sequence[str]:
    """Returns the names that a tensor of a file can have in the module: with and without the tower's ``vision_model``."""
    renamed = next((new + name.removeprefix(old) for old, new in _PREFIXES if name.startswith(old)), name)
    shorter = renamed.replace("model.vision_tower.vision_model.", "model.vision_tower.")
    longer = shorter.replace("model.vision_tower.", "model.vision_tower.vision_model.")
    return (renamed, shorter, longer)
