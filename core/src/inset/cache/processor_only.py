"""The `processor_only` type: the front half keeps the tensors and sends them each time, so several front ends can share an engine."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from inset.cache.base import (
    CacheMessage,
    CacheStats,
    CommittedItem,
    ItemToCommit,
    MultiModalCacheMissError,
    ProcessorCacheEngine,
    read_only,
)
from inset.cache.front import IndexedFront, IndexedTransaction
from inset.cache.holds import RequestHolds
from inset.cache.index import CacheEntry

if TYPE_CHECKING:
    from inset.inputs import ItemTensors

__all__ = ["ProcessorOnlyCacheEngine", "ProcessorOnlyCacheFront"]


class ProcessorOnlyCacheFront(IndexedFront["ItemTensors"]):
    """Keeps tensors; what was used least recently, and is not in use, goes first."""

    def commit(
        self, transaction: IndexedTransaction[ItemTensors], request_id: str, items: Sequence[ItemToCommit]
    ) -> Sequence[CommittedItem]:
        with self.lock:
            admission = self.admit(items, sequence=0, payload_of=read_only, room_bytes=self.index.capacity_bytes)
            committed = []
            for item in items:
                entry = admission.entries.get(item.mm_hash)
                if entry is None and item.item is not None:
                    committed.append(CommittedItem(item.mm_hash, item.item.tensors))
                else:
                    # An item that was dropped since it was pinned is still whole here.
                    committed.append(CommittedItem(item.mm_hash, (entry or transaction.find_pinned(item.mm_hash)).payload))
            transaction.end()
            return committed

    def find_tensors(self, entry: CacheEntry[ItemTensors]) -> ItemTensors:
        return entry.payload


class ProcessorOnlyCacheEngine(ProcessorCacheEngine):
    """Holds what came with each request until the request ends."""

    def __init__(self, *, capacity_bytes: int) -> None:
        super().__init__(capacity_bytes=capacity_bytes)
        self._holds = RequestHolds()

    def apply(self, message: CacheMessage) -> None:
        """Nothing: the front half of this type sends no messages."""

    def resolve(self, request_id: str, items: Sequence[CommittedItem]) -> Sequence[ItemTensors]:
        missing = [(item.mm_hash, 0) for item in items if item.tensors is None]
        if missing:
            raise MultiModalCacheMissError(missing)
        resolved = [read_only(item.tensors) for item in items if item.tensors is not None]
        for item, tensors in zip(items, resolved, strict=True):
            self._holds.put(request_id, item.mm_hash, tensors)
        return resolved

    def release(self, request_id: str) -> None:
        self._holds.release(request_id)

    def reset(self) -> None:
        """Nothing: only requests hold anything here."""

    @property
    def stats(self) -> CacheStats:
        return CacheStats(num_leases=len(self._holds))

    def close(self) -> None:
        self._holds.clear()
