"""The family as the worker sees it: an adapter around a transformers module."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Self

import torch

from inset.api import (
    AttentionLayerSpec,
    Checkpoint,
    ConfigError,
    LoadOptions,
    ModelAdapter,
    build_module,
    load_weights,
    own_attention,
    read_attention_layers,
)
from inset_acme.config import ImageConfig, read_image_config

__all__ = ["AcmeAdapter"]


class AcmeAdapter(ModelAdapter):
    """Vision tower, projector and text model of one transformers module."""

    def __init__(self, module: Any, image: ImageConfig, options: LoadOptions) -> None:
        self._module = module
        self._text_model = module.model.language_model
        self._layers = read_attention_layers(module.config.text_config)
        self._mean = torch.tensor(image.mean, device=options.device)
        self._std = torch.tensor(image.std, device=options.device)
        self._dtype = options.dtype

    @classmethod
    def load(cls, checkpoint: Checkpoint, options: LoadOptions) -> Self:
        """Builds the module without weights and fills it from the safetensors files."""
        from transformers.models.llava.configuration_llava import LlavaConfig
        from transformers.models.llava.modeling_llava import LlavaForConditionalGeneration

        try:
            config = LlavaConfig.from_dict({**checkpoint.config, "model_type": LlavaConfig.model_type})
        except (ValueError, TypeError, KeyError) as error:
            raise ConfigError(f"config.json of the checkpoint {checkpoint.folder.name!r} cannot be read: {error}") from error
        module = build_module(LlavaForConditionalGeneration, config, options)
        load_weights(module, checkpoint, options, candidates=names_in_the_module)
        return cls(module, read_image_config(checkpoint), options)

    @property
    def hidden_size(self) -> int:
        """Width of the text model's embeddings."""
        return int(self._module.config.text_config.hidden_size)

    @property
    def attention_layers(self) -> Sequence[AttentionLayerSpec]:
        """The decoder layers."""
        return self._layers

    def encode(self, modality: str, items: Sequence[Mapping[str, torch.Tensor]]) -> Sequence[torch.Tensor]:
        """Returns ``(num_embeds, hidden_size)`` embeddings of each image.

        Args:
            modality: ``image``.
            items: What `materialize` gave, on the model's device; all of one shape.
        """
        raise NotImplementedError("Write AcmeAdapter.encode: normalise the pixels, and run vision tower and projector over all items.")

    def embed_input_ids(self, input_ids: torch.Tensor) -> torch.Tensor:
        """Returns ``(num_tokens, hidden_size)`` embeddings of ``(num_tokens,)`` token ids."""
        embeddings: torch.Tensor = self._text_model.get_input_embeddings()(input_ids)
        return embeddings

    def forward(self, inputs_embeds: torch.Tensor, position_ids: torch.Tensor, *, layer_embeds: torch.Tensor | None = None) -> torch.Tensor:
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


def names_in_the_module(name: str) -> Sequence[str]:
    """Returns the names that a tensor of a file can have in the module, most likely first."""
    return (name,)
