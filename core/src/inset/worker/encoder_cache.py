"""Outputs of encoders by `mm_hash`. What is kept and what is dropped is the scheduler's decision."""

from __future__ import annotations

from dataclasses import dataclass

from inset.modeling.interfaces import EncodedItem

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
    """mm_hash -> rows and their places; owned by the worker, used from one thread."""

    def __init__(self) -> None:
        self._items: dict[bytes, EncodedItem] = {}

    def get(self, mm_hash: bytes) -> EncodedItem | None:
        """Returns an item, or None; the caller does not write to its tensors."""
        return self._items.get(mm_hash)

    def put(self, mm_hash: bytes, item: EncodedItem) -> None:
        """Keeps an item."""
        self._items[mm_hash] = item

    def drop(self, mm_hash: bytes) -> None:
        """Forgets an item; idempotent."""
        self._items.pop(mm_hash, None)

    def clear(self) -> None:
        """Forgets everything."""
        self._items.clear()

    @property
    def stats(self) -> EncoderCacheStats:
        """What is held now."""
        held = [item.rows for item in self._items.values()]
        return EncoderCacheStats(len(held), sum(len(rows) for rows in held), sum(rows.nbytes for rows in held))
