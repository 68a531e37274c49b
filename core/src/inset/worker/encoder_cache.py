"""Outputs of encoders by `mm_hash`. What is kept and what is dropped is the scheduler's decision."""

from __future__ import annotations

from dataclasses import dataclass

import torch

__all__ = ["EncoderCache", "EncoderCacheStats"]


@dataclass(frozen=True, slots=True)
class EncoderCacheStats:
    """What the cache holds.

    Attributes:
        num_items: Items held.
        num_embeds: Rows held.
        num_bytes: Their size, in bytes.
    """

    num_items: int
    num_embeds: int
    num_bytes: int


class EncoderCache:
    """mm_hash -> ``(num_embeds, embed_size)`` rows on the model's device; owned by the worker, used from one thread."""

    def __init__(self) -> None:
        self._rows: dict[bytes, torch.Tensor] = {}

    def get(self, mm_hash: bytes) -> torch.Tensor | None:
        """Returns the rows of an item, or None; the caller does not write to them."""
        return self._rows.get(mm_hash)

    def put(self, mm_hash: bytes, rows: torch.Tensor) -> None:
        """Keeps the rows of an item."""
        self._rows[mm_hash] = rows

    def drop(self, mm_hash: bytes) -> None:
        """Forgets an item; idempotent."""
        self._rows.pop(mm_hash, None)

    def clear(self) -> None:
        """Forgets everything."""
        self._rows.clear()

    @property
    def stats(self) -> EncoderCacheStats:
        """What is held now."""
        held = self._rows.values()
        return EncoderCacheStats(len(self._rows), sum(len(rows) for rows in held), sum(rows.nbytes for rows in held))
