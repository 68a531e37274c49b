"""Hands the attention of one step to the attention layers that run inside a transformers module.

The context is a context variable, so that engines in other threads of the process never see each other's steps.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import TYPE_CHECKING

from inset.errors import InvariantError

if TYPE_CHECKING:
    import torch

__all__ = ["PackedAttention", "current_attention", "forward_context"]


class PackedAttention(ABC):
    """The attention of one step: it knows which positions of the packed batch belong to which sequence."""

    @abstractmethod
    def attend(
        self,
        layer_idx: int,
        query: torch.Tensor,
        key: torch.Tensor,
        value: torch.Tensor,
        *,
        scaling: float,
        sliding_window: int | None = None,
        softcap: float | None = None,
    ) -> torch.Tensor:
        """Stores the new keys and values, and lets every query see its own sequence up to itself.

        Args:
            layer_idx: Index into `ModelAdapter.attention_layers`.
            query: ``(num_heads, num_tokens, head_dim)``.
            key: ``(num_kv_heads, num_tokens, head_dim)``, rotary positions applied.
            value: ``(num_kv_heads, num_tokens, head_dim)``.
            scaling: Factor on the scores.
            sliding_window: How many last positions a query sees, itself included; None means all.
            softcap: Scores s become ``softcap * tanh(s / softcap)``; None leaves them.

        Returns:
            ``(num_tokens, num_heads, head_dim)``.
        """


_CURRENT: ContextVar[PackedAttention | None] = ContextVar("inset_packed_attention", default=None)


@contextmanager
def forward_context(attention: PackedAttention) -> Iterator[None]:
    """Makes an attention the current one while a model's forward runs."""
    token = _CURRENT.set(attention)
    try:
        yield
    finally:
        _CURRENT.reset(token)


def current_attention() -> PackedAttention:
    """Returns the attention of the step that runs.

    Raises:
        InvariantError: The text model was called outside `forward_context`.
    """
    attention = _CURRENT.get()
    if attention is None:
        raise InvariantError("A text model with paged attention ran outside a forward context.")
    return attention
