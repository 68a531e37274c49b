"""Both halves: the front half keeps items in a form of its own and sends their tensors, the engine half holds what requests use."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeAlias

from inset.api import (
    CacheEntry,
    CacheMessage,
    CacheStats,
    CommittedItem,
    IndexedFront,
    IndexedTransaction,
    ItemTensors,
    ItemToCommit,
    MultiModalCacheMissError,
    ProcessorCacheEngine,
    RequestHolds,
    read_only,
)

__all__ = ["AcmeCacheEngine", "AcmeCacheFront"]

Packed: TypeAlias = "bytes | ItemTensors"
"""The form in which an item is kept; make it what suits you."""


class AcmeCacheFront(IndexedFront[Packed]):
    """Keeps items packed; look-ups, pins, single-flight, eviction and statistics come from `IndexedFront`."""

    def pack(self, tensors: ItemTensors) -> Packed:
        """Returns the form in which an item is kept."""
        raise NotImplementedError("Write AcmeCacheFront.pack: the form in which an item is kept.")

    def unpack(self, packed: Packed) -> ItemTensors:
        """Returns the tensors of a packed item, bit for bit, with dtypes and shapes; read-only."""
        raise NotImplementedError("Write AcmeCacheFront.unpack: the tensors of a packed item.")

    def commit(self, transaction: IndexedTransaction[Packed], request_id: str, items: Sequence[ItemToCommit]) -> Sequence[CommittedItem]:
        """Stores what is new, and hands out the tensors of every item; an item that does not fit travels inline."""
        new = {id(item.item.tensors): self.pack(item.item.tensors) for item in items if item.item is not None}
        with self.lock:  # bookkeeping alone: what is slow stays outside
            self.admit(items, sequence=0, payload_of=lambda tensors: new[id(tensors)], room_bytes=self.index.capacity_bytes)
            hits = {item.mm_hash: transaction.find_pinned(item.mm_hash).payload for item in items if item.item is None}
            transaction.end()
        return [
            CommittedItem(item.mm_hash, self.unpack(hits[item.mm_hash]) if item.item is None else read_only(item.item.tensors))
            for item in items
        ]

    def find_tensors(self, entry: CacheEntry[Packed]) -> ItemTensors:
        """Returns the tensors of a pinned item."""
        return self.unpack(entry.payload)


class AcmeCacheEngine(ProcessorCacheEngine):
    """Holds what came with each request until the request is released."""

    def __init__(self, *, capacity_bytes: int) -> None:
        super().__init__(capacity_bytes=capacity_bytes)
        self._holds = RequestHolds()

    def apply(self, message: CacheMessage) -> None:
        """Nothing: the front half sends no messages."""

    def resolve(self, request_id: str, items: Sequence[CommittedItem]) -> Sequence[ItemTensors]:
        """Returns the tensors of a request's items; those that came without any are missing."""
        missing = [(item.mm_hash, 0) for item in items if item.tensors is None]
        if missing:
            raise MultiModalCacheMissError(missing)
        resolved = [read_only(item.tensors) for item in items if item.tensors is not None]
        for item, tensors in zip(items, resolved, strict=True):
            self._holds.put(request_id, item.mm_hash, tensors)
        return resolved

    def release(self, request_id: str) -> None:
        """Lets go of what a request held."""
        self._holds.release(request_id)

    def reset(self) -> None:
        """Nothing: only requests hold anything here."""

    @property
    def stats(self) -> CacheStats:
        """How many items requests hold."""
        return CacheStats(num_leases=len(self._holds))

    def close(self) -> None:
        """Lets go of everything."""
        self._holds.clear()
