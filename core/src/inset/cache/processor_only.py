"""The `processor_only` type: the front half keeps the tensors and sends them each time, so several front ends can share an engine."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from inset.cache.front import IndexedFront, IndexedTransaction
from inset.cache.holds import HoldingEngine
from inset.cache.index import CacheEntry
from inset.cache.values import CommittedItem, ItemToCommit, read_only

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


class ProcessorOnlyCacheEngine(HoldingEngine):
    """Holds what came with each request until the request ends; what came without tensors is nowhere."""

    def find(self, request_id: str, item: CommittedItem) -> None:
        return None

    def get_sequence(self, item: CommittedItem) -> int:
        return 0
