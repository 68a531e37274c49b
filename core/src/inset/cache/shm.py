"""The `shm` type: the front half writes tensors into shared memory, the engine half views them there; only handles travel."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Final, Self

from inset.cache.free_list import FreeList
from inset.cache.front import IndexedFront, IndexedTransaction
from inset.cache.holds import HoldingEngine
from inset.cache.index import CacheEntry
from inset.cache.segment import ALIGNMENT, ArrayLayout, SegmentReader, SegmentWriter, object_bytes
from inset.cache.values import (
    CacheExport,
    CacheStats,
    CommittedItem,
    ItemToCommit,
    ProcessedItem,
    item_bytes,
)
from inset.config import MIB

if TYPE_CHECKING:
    from pathlib import Path

    from inset.config import CacheConfig
    from inset.inputs import ItemTensors

__all__ = ["ShmCacheEngine", "ShmCacheFront"]

MAX_OBJECT_BYTES: Final = 128 * MIB
MAX_WRITE_SECONDS: Final = 60.0


@dataclass(slots=True)
class StoredObject:
    """Where an item lies in the segment.

    Attributes:
        offset: Of its span.
        layout: Of its arrays; empty until they have been written.
        is_settled: Set once the writing has ended, well or not.
    """

    offset: int
    layout: tuple[ArrayLayout, ...] = ()
    is_settled: threading.Event = field(default_factory=threading.Event)


class ShmCacheFront(IndexedFront[StoredObject]):
    """Owns the segment, the index and the leases; what was stored first, and is not in use, goes first.

    A lease is a pin that belongs to a request. It begins with the commit and ends with `release`, which follows the engine's word alone.

    Args:
        capacity_bytes: Size of the segment; headers and alignment count.
        max_object_bytes: Largest item that is stored; larger ones travel inline.
        folder: Where the segment is made as a file instead of a memfd.

    Raises:
        ConfigError: The segment cannot be had.
    """

    def __init__(self, *, capacity_bytes: int, max_object_bytes: int = MAX_OBJECT_BYTES, folder: Path | None = None) -> None:
        super().__init__(capacity_bytes=capacity_bytes // ALIGNMENT * ALIGNMENT)
        self._max_object_bytes = max_object_bytes
        self._segment = SegmentWriter(self._capacity_bytes, folder=folder)
        self._free = FreeList(self._capacity_bytes)
        self._writing: dict[bytes, CacheEntry[StoredObject]] = {}
        self._leases: dict[str, list[CacheEntry[StoredObject]]] = {}
        self._generation = 0
        self._is_closed = False

    @classmethod
    def from_config(cls, config: CacheConfig) -> Self:
        return cls(
            capacity_bytes=config.capacity_bytes,
            max_object_bytes=config.mm_shm_cache_max_object_size_mb * MIB,
        )

    def export(self) -> CacheExport:
        return CacheExport((self._segment.segment_id, self._segment.num_bytes), (self._segment.fd,))

    def commit(
        self, transaction: IndexedTransaction[StoredObject], request_id: str, items: Sequence[ItemToCommit]
    ) -> Sequence[CommittedItem]:
        """Reserves under the lock, writes without it, stores under it again: a hit never waits while something large is written."""
        with self.lock:
            entries, new = self._reserve_all(transaction, items)
        try:
            self._write_all(new)
            for entry in entries.values():
                # Another request may be writing the same item; it waits for nothing before it has written all of its own.
                entry.payload.is_settled.wait(MAX_WRITE_SECONDS)
        except BaseException:
            with self.lock:
                for entry in entries.values():
                    self.unpin(entry)
            raise
        with self.lock:
            for mm_hash in [mm_hash for mm_hash, entry in entries.items() if not entry.payload.layout]:
                self.unpin(entries.pop(mm_hash))
            if entries:
                self._leases.setdefault(request_id, []).extend(entries.values())
            transaction.end()
            return [self._travel(item, entries.get(item.mm_hash)) for item in items]

    def touch(self, entry: CacheEntry[StoredObject]) -> None:
        """Nothing: items leave in the order in which they came."""

    def unpin(self, entry: CacheEntry[StoredObject]) -> None:
        super().unpin(entry)
        if entry.num_pins == 0 and not entry.is_live:
            self._discard(entry)

    def forget(self, entries: Sequence[CacheEntry[StoredObject]]) -> None:
        super().forget(entries)
        for entry in entries:
            if entry.num_pins == 0:
                self._discard(entry)

    def release(self, request_id: str) -> None:
        with self.lock:
            self._end_leases(request_id)

    def engine_restarted(self) -> None:
        with self.lock:
            # What was committed but not sent yet has lost its leases too: the next engine half must not take its handles.
            self._segment.rename()
            for request_id in list(self._leases):
                self._end_leases(request_id)

    @property
    def stats(self) -> CacheStats:
        """As ever; the bytes include headers, gaps, and what was forgotten but is still leased."""
        return replace(super().stats, num_bytes=self._free.num_used_bytes)

    def close(self) -> None:
        super().close()
        with self.lock:
            self._is_closed = True
            self._close_segment_if_idle()

    def _reserve_all(
        self, transaction: IndexedTransaction[StoredObject], items: Sequence[ItemToCommit]
    ) -> tuple[dict[bytes, CacheEntry[StoredObject]], list[tuple[ProcessedItem, CacheEntry[StoredObject]]]]:
        """Pins a request's items that are stored or being written, and then finds room for the others."""
        entries: dict[bytes, CacheEntry[StoredObject]] = {}
        new: list[tuple[ProcessedItem, CacheEntry[StoredObject]]] = []
        for item in items:
            entry = self.index.get(item.mm_hash)
            if entry is None and item.item is None:
                # Dropped since it was found. Its memory is still there; that of whoever writes it anew might never be.
                entry = transaction.find_pinned(item.mm_hash)
            elif entry is None:
                entry = self._writing.get(item.mm_hash)
            if entry is not None and item.mm_hash not in entries:
                entries[item.mm_hash] = entry
                self.index.pin(entry)
        for item in items:
            if item.item is None or item.mm_hash in entries or not 0 < item_bytes(item.item.tensors) <= self._max_object_bytes:
                continue
            num_bytes = object_bytes(item.item.tensors)
            offset = self._reserve(num_bytes)
            if offset is None:
                continue
            self._generation += 1
            entry = CacheEntry(item.mm_hash, item.item.plan, num_bytes, self._generation, StoredObject(offset), is_live=False)
            self._writing[item.mm_hash] = entries[item.mm_hash] = entry
            self.index.pin(entry)
            new.append((item.item, entry))
        return entries, new

    def _reserve(self, num_bytes: int) -> int | None:
        """Returns the offset of a span, evicting as few of the oldest items as needed; None and no eviction where pins leave no room."""
        if self._is_closed:
            return None
        offset = self._free.allocate(num_bytes)
        if offset is None and not self._free.could_hold(num_bytes, [(e.payload.offset, e.num_bytes) for e in self.index.pinned]):
            return None
        while offset is None:
            oldest = next(entry for entry in self.index if entry.num_pins == 0)
            self.index.evict(oldest)
            self._discard(oldest)
            offset = self._free.allocate(num_bytes)
        return offset

    def _write_all(self, new: Sequence[tuple[ProcessedItem, CacheEntry[StoredObject]]]) -> None:
        try:
            for item, entry in new:
                # Memory that cannot be had leaves the layout empty: then the item travels inline.
                with suppress(OSError):
                    entry.payload.layout = self._segment.write(entry.payload.offset, entry.mm_hash, entry.sequence, item.tensors)
        finally:
            with self.lock:
                for _, entry in new:
                    self._settle(entry)

    def _settle(self, entry: CacheEntry[StoredObject]) -> None:
        del self._writing[entry.mm_hash]
        if entry.payload.layout and not self._is_closed:
            entry.is_live = True
            self.index.add(entry)
        entry.payload.is_settled.set()
        self._close_segment_if_idle()

    def _discard(self, entry: CacheEntry[StoredObject]) -> None:
        if entry.payload.layout and not self._is_closed:
            self._segment.clear(entry.payload.offset)
        self._free.free(entry.payload.offset, entry.num_bytes)

    def _end_leases(self, request_id: str) -> None:
        for entry in self._leases.pop(request_id, ()):
            self.unpin(entry)

    def _close_segment_if_idle(self) -> None:
        # Never under a writer: the number of a closed descriptor may soon name another file.
        if self._is_closed and not self._writing:
            self._segment.close()

    def _travel(self, item: ItemToCommit, entry: CacheEntry[StoredObject] | None) -> CommittedItem:
        if entry is not None:
            handle = (self._segment.segment_id, entry.payload.offset, entry.sequence, entry.payload.layout)
            return CommittedItem(item.mm_hash, None, handle)
        assert item.item is not None
        return CommittedItem(item.mm_hash, item.item.tensors)


class ShmCacheEngine(HoldingEngine):
    """Views the segment; keeps nothing but the views that requests hold."""

    def __init__(self, *, capacity_bytes: int) -> None:
        super().__init__(capacity_bytes=capacity_bytes)
        self._reader: SegmentReader | None = None
        self._segment_id: bytes = b""

    def attach(self, export: CacheExport) -> None:
        segment_id, num_bytes = export.values
        assert isinstance(segment_id, bytes)
        assert isinstance(num_bytes, int)
        self._reader, self._segment_id = SegmentReader(export.fds[0], num_bytes), segment_id

    def find(self, request_id: str, item: CommittedItem) -> ItemTensors | None:
        segment_id, offset, generation, layout = item.handle
        if self._reader is None or segment_id != self._segment_id:
            return None
        return self._reader.read(offset, item.mm_hash, generation, layout)

    def get_sequence(self, item: CommittedItem) -> int:
        generation: int = item.handle[2]
        return generation

    def close(self) -> None:
        super().close()
        self._reader = None
