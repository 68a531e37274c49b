"""What the adapters of model families have in common: a transformers module with a text model and a head."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, TypeVar

import torch

from inset.checkpoint import Checkpoint
from inset.errors import ConfigError
from inset.modeling.attention import own_attention, read_attention_layers
from inset.modeling.interfaces import AttentionLayerSpec, ModelAdapter

__all__ = ["TransformersAdapter", "read_config"]

C = TypeVar("C")


def read_config(config_class: type[C], checkpoint: Checkpoint, **changes: object) -> C:
    """Returns the transformers config of a checkpoint.

    Args:
        config_class: A transformers config class.
        checkpoint: The checkpoint.
        **changes: Entries that take the place of those in config.json.

    Raises:
        ConfigError: config.json does not fit the class.
    """
    try:
        config: C = config_class.from_dict({**checkpoint.config, **changes})  # type: ignore[attr-defined]
    except (ValueError, TypeError, KeyError) as error:
        raise ConfigError(f"config.json of the checkpoint {checkpoint.folder.name!r} cannot be read: {error}") from error
    return config


class TransformersAdapter(ModelAdapter):
    """An adapter around a transformers module that has ``model.language_model`` and ``lm_head``, as multi-modal classes of transformers do.

    A family adds `load` and `encode`, and `get_positions` where its positions have several axes.

    Attributes:
        module: The transformers module.
        text_model: Its text model.
    """

    def __init__(self, module: Any) -> None:
        self.module = module
        self.text_model = module.model.language_model
        self._layers = read_attention_layers(module.config.text_config)

    @property
    def hidden_size(self) -> int:
        """Width of the text model's embeddings."""
        return int(self.module.config.text_config.hidden_size)

    @property
    def attention_layers(self) -> Sequence[AttentionLayerSpec]:
        """The decoder layers."""
        return self._layers

    def embed_input_ids(self, input_ids: torch.Tensor) -> torch.Tensor:
        """Returns ``(num_tokens, hidden_size)`` embeddings of ``(num_tokens,)`` int64 token ids."""
        embeddings: torch.Tensor = self.text_model.get_input_embeddings()(input_ids)
        return embeddings

    def forward(
        self,
        inputs_embeds: torch.Tensor,
        position_ids: torch.Tensor,
        *,
        layer_embeds: torch.Tensor | None = None,
    ) -> torch.Tensor:
        """Runs the text model over a packed batch; see `ModelAdapter.forward`."""
        return self.run_text_model(inputs_embeds, position_ids)

    def run_text_model(self, inputs_embeds: torch.Tensor, position_ids: torch.Tensor, **arguments: Any) -> torch.Tensor:
        """Returns ``(num_tokens, hidden_size)`` hidden states of a packed batch.

        Args:
            inputs_embeds: ``(1, num_tokens, hidden_size)``.
            position_ids: ``(num_position_axes, num_tokens)`` int64.
            **arguments: What else this text model takes.
        """
        positions = position_ids if self.num_position_axes == 1 else position_ids[:, None]
        output = self.text_model(inputs_embeds=inputs_embeds, position_ids=positions, use_cache=False, **arguments)
        hidden_states: torch.Tensor = output.last_hidden_state[0]
        return hidden_states

    def compute_logits(self, hidden_states: torch.Tensor) -> torch.Tensor:
        """Returns ``(num_rows, vocab_size)`` logits of ``(num_rows, hidden_size)`` hidden states."""
        logits: torch.Tensor = self.module.lm_head(hidden_states)
        return logits

    def plain_forward(self, input_ids: torch.Tensor) -> torch.Tensor:
        """Returns ``(num_tokens, vocab_size)`` logits of a text prompt by the module's own attention."""
        with own_attention(self.text_model):
            output = self.text_model(input_ids=input_ids[None], use_cache=False)
        return self.compute_logits(output.last_hidden_state[0])
