"""The family as the worker sees it: an adapter around a transformers module."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Self

import torch
from inset.api import Checkpoint, LoadOptions, TransformersAdapter, build_module, load_weights, read_config

from inset_acme.config import ImageConfig, read_image_config

__all__ = ["AcmeAdapter"]


class AcmeAdapter(TransformersAdapter):
    """Vision tower, projector and text model of one transformers module; the text model is run by `TransformersAdapter`."""

    def __init__(self, module: Any, image: ImageConfig, options: LoadOptions) -> None:
        super().__init__(module)
        self._mean = torch.tensor(image.mean, device=options.device)
        self._std = torch.tensor(image.std, device=options.device)
        self._dtype = options.dtype

    @classmethod
    def load(cls, checkpoint: Checkpoint, options: LoadOptions) -> Self:
        """Builds the module without weights and fills it from the safetensors files."""
        from transformers.models.llava.configuration_llava import LlavaConfig
        from transformers.models.llava.modeling_llava import LlavaForConditionalGeneration

        config = read_config(LlavaConfig, checkpoint, model_type=LlavaConfig.model_type)
        module = build_module(LlavaForConditionalGeneration, config, options)
        load_weights(module, checkpoint, options, candidates=names_in_the_module)
        return cls(module, read_image_config(checkpoint), options)

    def encode(self, modality: str, items: Sequence[Mapping[str, torch.Tensor]]) -> Sequence[torch.Tensor]:
        """Returns ``(num_embeds, hidden_size)`` embeddings of each image.

        Args:
            modality: ``image``.
            items: What `materialize` gave, on the model's device; all of one shape.
        """
        raise NotImplementedError("Write AcmeAdapter.encode: normalise the pixels, then run tower and projector.")


def names_in_the_module(name: str) -> Sequence[str]:
    """Returns the names that a tensor of a file can have in the module, most likely first."""
    return (name,)
