"""What a model family gives the worker: one adapter around a transformers module."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar, NamedTuple, Self

import torch

if TYPE_CHECKING:
    from inset.checkpoint import Checkpoint
    from inset.inputs import ItemTensors, MultiModalFeature

__all__ = ["AttentionLayerSpec", "EncodedItem", "LoadOptions", "ModelAdapter", "PromptPositions"]


@dataclass(frozen=True, slots=True)
class AttentionLayerSpec:
    """One decoder layer's keys and values.

    Attributes:
        num_kv_heads: Key and value heads.
        head_dim: Size of one head.
        sliding_window: How many last positions a token sees, or None for all of them.
    """

    num_kv_heads: int
    head_dim: int
    sliding_window: int | None = None


@dataclass(frozen=True, slots=True)
class LoadOptions:
    """How weights are loaded.

    Attributes:
        device: Where the model runs.
        dtype: Type of weights and activations.
        attn_implementation: Name under which the core registered its paged attention with transformers; for the text model alone.
        max_model_len: Longest request that will be served, in tokens; None for all positions that the model has.
    """

    device: torch.device
    dtype: torch.dtype
    attn_implementation: str
    max_model_len: int | None = None


class PromptPositions(NamedTuple):
    """Rotary positions of a prompt.

    Attributes:
        positions: ``(num_axes, num_prompt_tokens)`` int64 on the host.
        next_position: Position of the first generated token on every axis; the following ones count up from it.
    """

    positions: torch.Tensor
    next_position: int


class EncodedItem(NamedTuple):
    """What an encoder run of one item leaves; the encoder cache keeps it for every request with that item.

    Attributes:
        rows: ``(num_embeds, embed_size)`` embeddings on the model's device, in the model's dtype.
        offsets: ``(num_position_axes, num_embeds)`` int64 on the host: the rotary position of each row, counted from the position that
            `ModelAdapter.get_positions` gives the item's first row; None where all positions are as `get_positions` gives them.
    """

    rows: torch.Tensor
    offsets: torch.Tensor | None = None


class ModelAdapter(ABC):
    """A family's model, seen from the worker.

    The worker owns it and calls it from one thread. It keeps no state between calls, so that requests cannot leak into one another.

    Attributes:
        num_position_axes: Axes of the rotary positions: 1, or 3 for (t, h, w).
    """

    num_position_axes: ClassVar[int] = 1

    @classmethod
    @abstractmethod
    def load(cls, checkpoint: Checkpoint, options: LoadOptions) -> Self:
        """Builds the transformers module and loads the safetensors weights of the checkpoint.

        Raises:
            ConfigError: The config cannot be served, or weights are missing or have other shapes.
        """

    @property
    @abstractmethod
    def hidden_size(self) -> int:
        """Width of the text model's embeddings."""

    @property
    def embed_size(self) -> int:
        """Width of a row that the encoder gives: `hidden_size`, or more where later layers receive features of their own."""
        return self.hidden_size

    @property
    @abstractmethod
    def attention_layers(self) -> Sequence[AttentionLayerSpec]:
        """The decoder layers in the order of their ``layer_idx``."""

    @abstractmethod
    def encode(self, modality: str, items: Sequence[Mapping[str, torch.Tensor]]) -> Sequence[torch.Tensor]:
        """Returns the embeddings of items that share an `encoder_batch_key`.

        Args:
            modality: ``image``, ``video`` or ``audio``.
            items: Processed tensors on the model's device, as `MultiModalProcessor.materialize` made them; uint8 patches are
                normalised here.

        Returns:
            One ``(num_embeds, embed_size)`` tensor per item, in the model's dtype; more rows where `select_rows` leaves some out.
        """

    def select_rows(self, modality: str, item: Mapping[str, torch.Tensor], rows: torch.Tensor) -> EncodedItem:
        """Returns what stays of an encoded item: by default every row, at the positions that `get_positions` gives.

        A family may leave rows out by what they hold, as many as its plan said. Which ones is known only here, after `get_positions`:
        so it says where the others stand, and the worker puts those positions in place of the earlier ones.

        Args:
            modality: ``image``, ``video`` or ``audio``.
            item: Its processed tensors, as `encode` got them.
            rows: What `encode` gave for it. The choice follows from these and `item` alone, because it is kept under the item's identity.
                Keys and values outlive encoder outputs: where a choice could turn on rounding, `encode` runs the item apart from others.
        """
        return EncodedItem(rows)

    def encoder_batch_key(self, modality: str, item: ItemTensors) -> Hashable:
        """Returns what items must have in common to run in one encoder batch: by default all shapes of their tensors."""
        return (modality, *((name, array.shape) for name, array in sorted(item.items())))

    @abstractmethod
    def embed_input_ids(self, input_ids: torch.Tensor) -> torch.Tensor:
        """Returns ``(num_tokens, hidden_size)`` embeddings of ``(num_tokens,)`` int64 token ids."""

    def get_positions(self, prompt_token_ids: Sequence[int], mm_features: Sequence[MultiModalFeature]) -> PromptPositions:
        """Returns the rotary positions of a prompt; called when a request is taken in, before its encoders. By default 0, 1, 2 ..."""
        length = len(prompt_token_ids)
        return PromptPositions(torch.arange(length).expand(self.num_position_axes, length), length)

    @abstractmethod
    def forward(
        self,
        inputs_embeds: torch.Tensor,
        position_ids: torch.Tensor,
        *,
        layer_embeds: torch.Tensor | None = None,
    ) -> torch.Tensor:
        """Runs the text model over a packed batch; attention finds its sequences in `inset.modeling.forward_context`.

        Args:
            inputs_embeds: ``(1, num_tokens, hidden_size)``, sequences one after another.
            position_ids: ``(num_position_axes, num_tokens)`` int64.
            layer_embeds: ``(num_tokens, embed_size - hidden_size)``, zero where no item is, or None in a step without any.

        Returns:
            ``(num_tokens, hidden_size)`` hidden states behind the last norm.
        """

    @abstractmethod
    def compute_logits(self, hidden_states: torch.Tensor) -> torch.Tensor:
        """Returns ``(num_rows, vocab_size)`` logits of ``(num_rows, hidden_size)`` hidden states."""

    @abstractmethod
    def plain_forward(self, input_ids: torch.Tensor) -> torch.Tensor:
        """Returns ``(num_tokens, vocab_size)`` logits of a text prompt by the module's own attention.

        The worker compares its paged attention with this once, at load: ``input_ids`` is ``(num_tokens,)`` int64.
        """
