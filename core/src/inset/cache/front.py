"""What the front halves of the built-in types share: look-ups, pins, flights and statistics over one index under one lock."""

from __future__ import annotations

import threading
from abc import abstractmethod
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Generic, NamedTuple, TypeVar, final

from inset.cache.base import CacheTransaction, Flight, ProcessorCacheFront
from inset.cache.flights import FlightTable
from inset.cache.index import CacheEntry, CacheIndex
from inset.cache.values import CacheStats, CommittedItem, ItemToCommit, item_bytes
from inset.errors import InvariantError

if TYPE_CHECKING:
    from inset.inputs import ItemPlan, ItemTensors

__all__ = ["Admission", "IndexedFront", "IndexedTransaction"]

P = TypeVar("P")


class Admission(NamedTuple, Generic[P]):
    """What a commit did to the index.

    Attributes:
        entries: The request's items that are stored, by hash.
        inserted: Those of them that are new.
        evicted: The items that went for them.
    """

    entries: dict[bytes, CacheEntry[P]]
    inserted: list[CacheEntry[P]]
    evicted: list[CacheEntry[P]]


class IndexedFront(ProcessorCacheFront, Generic[P]):
    """A front half with an index. A type says how a commit stores items and how they travel.

    Attributes:
        lock: Held for bookkeeping only; nothing is waited for, copied or sent under it.
        index: The books.
        flights: The items being processed.
        num_hits: As in `CacheStats`.
        num_misses: As in `CacheStats`.
    """

    def __init__(self, *, capacity_bytes: int) -> None:
        super().__init__(capacity_bytes=capacity_bytes)
        self.lock = threading.Lock()
        self.index: CacheIndex[P] = CacheIndex(capacity_bytes)
        self.flights = FlightTable()
        self.num_hits = 0
        self.num_misses = 0

    @final
    def begin(self) -> CacheTransaction:
        return IndexedTransaction(self)

    @abstractmethod
    def commit(self, transaction: IndexedTransaction[P], request_id: str, items: Sequence[ItemToCommit]) -> Sequence[CommittedItem]:
        """Does what `CacheTransaction.commit` says, and ends the transaction under the lock."""

    def find_tensors(self, entry: CacheEntry[P]) -> ItemTensors | None:
        """Returns the tensors of a pinned item where this half can read them."""
        return None

    def touch(self, entry: CacheEntry[P]) -> None:
        """Notes a use of a live item, under the lock; a type that evicts in the order of inserts does nothing."""
        self.index.touch(entry)

    def unpin(self, entry: CacheEntry[P]) -> None:
        """Ends one use of an item, under the lock."""
        self.index.unpin(entry)

    def admit(
        self, items: Sequence[ItemToCommit], *, sequence: int, payload_of: Callable[[ItemTensors], P], room_bytes: int
    ) -> Admission[P]:
        """Stores new items, under the lock, where they fit beside everything in use and beside the other items of their request.

        Args:
            items: Of one request; an item that occurs twice is stored once.
            sequence: Number that the new entries get.
            payload_of: Gives what is kept of an item's tensors in its entry.
            room_bytes: Most bytes that may be stored now.
        """
        entries: dict[bytes, CacheEntry[P]] = {}
        inserted: list[CacheEntry[P]] = []
        evicted: list[CacheEntry[P]] = []
        for item in items:
            entry = self.index.get(item.mm_hash)
            if entry is not None and item.mm_hash not in entries:
                entries[item.mm_hash] = entry
                self.index.pin(entry)
                self.touch(entry)
        for item in items:
            if item.item is None or item.mm_hash in entries:
                continue
            num_bytes = item_bytes(item.item.tensors)
            victims = self.index.make_room(num_bytes) if 0 < num_bytes <= room_bytes else None
            if victims is None:
                continue
            room_bytes -= num_bytes
            entry = CacheEntry(item.mm_hash, item.item.plan, num_bytes, sequence, payload_of(item.item.tensors))
            self.index.add(entry)
            self.index.pin(entry)
            entries[item.mm_hash] = entry
            inserted.append(entry)
            evicted.extend(victims)
        for entry in entries.values():
            self.index.unpin(entry)
        return Admission(entries, inserted, evicted)

    def drop(self, missing: Sequence[tuple[bytes, int]], *, lost_before: int = 0) -> None:
        with self.lock:
            self.forget(self.index.find_lost(dict(missing), lost_before))

    def reset(self) -> None:
        with self.lock:
            self.forget([entry for entry in self.index if entry.num_pins == 0])

    def forget(self, entries: Sequence[CacheEntry[P]]) -> None:
        """Takes live items out of the index, under the lock."""
        for entry in entries:
            self.index.remove(entry)

    def release(self, request_id: str) -> None:
        """Nothing: in most types the engine half alone holds what a request uses."""

    @property
    def stats(self) -> CacheStats:
        with self.lock:
            return CacheStats(
                num_hits=self.num_hits,
                num_misses=self.num_misses,
                num_inserts=self.index.num_inserts,
                num_evictions=self.index.num_evictions,
                num_items=len(self.index),
                num_bytes=self.index.num_bytes,
                capacity_bytes=self.index.capacity_bytes,
                num_leases=len(self.index.pinned),
            )

    def close(self) -> None:
        with self.lock:
            self.forget(list(self.index))


class IndexedTransaction(CacheTransaction, Generic[P]):
    """One request's pins and flights in an `IndexedFront`."""

    def __init__(self, front: IndexedFront[P]) -> None:
        self._front = front
        self._pins: dict[bytes, CacheEntry[P]] = {}
        self._flights: dict[bytes, Flight] = {}
        self._seen: set[bytes] = set()
        self._is_closed = False

    def look_up(self, mm_hash: bytes) -> ItemPlan | None:
        with self._front.lock:
            entry = self._pin(mm_hash)
            if mm_hash not in self._seen:
                self._seen.add(mm_hash)
                self._front.num_hits += entry is not None
                self._front.num_misses += entry is None
            return entry.plan if entry is not None else None

    def get_tensors(self, mm_hash: bytes) -> ItemTensors | None:
        with self._front.lock:
            entry = self._pins.get(mm_hash)
            return self._front.find_tensors(entry) if entry is not None else None

    def join_flight(self, mm_hash: bytes) -> Flight | None:
        # Under the front's lock: between a commit that stores the item and the end of its flight nobody can slip through.
        with self._front.lock:
            if self._pin(mm_hash) is not None:
                return None
            if mm_hash not in self._flights:
                self._flights[mm_hash] = self._front.flights.join(mm_hash)
            return self._flights[mm_hash]

    def commit(self, request_id: str, items: Sequence[ItemToCommit]) -> Sequence[CommittedItem]:
        try:
            for item in items:
                if item.item is None:
                    self.find_pinned(item.mm_hash)
            return self._front.commit(self, request_id, items)
        finally:
            self.close()

    def close(self) -> None:
        with self._front.lock:
            self.end()

    def end(self) -> None:
        """Releases pins and leaves flights, under the front's lock; idempotent."""
        self._is_closed = True
        for entry in self._pins.values():
            self._front.unpin(entry)
        self._pins.clear()
        for flight in self._flights.values():
            flight.leave()
        self._flights.clear()

    def find_pinned(self, mm_hash: bytes) -> CacheEntry[P]:
        """Returns the item that a look-up has pinned, live or not."""
        entry = self._pins.get(mm_hash)
        if entry is None:
            raise InvariantError("An item was committed that was neither processed nor found in the processor cache.")
        return entry

    def _pin(self, mm_hash: bytes) -> CacheEntry[P] | None:
        if self._is_closed:
            raise InvariantError("A transaction of the processor cache was used after it had been closed.")
        entry = self._pins.get(mm_hash)
        if entry is not None and not entry.is_live:
            # Dropped since it was pinned: the engine half may not have it any more.
            self._front.unpin(self._pins.pop(mm_hash))
            entry = None
        if entry is None:
            entry = self._front.index.get(mm_hash)
            if entry is not None:
                self._front.index.pin(entry)
                self._front.touch(entry)
                self._pins[mm_hash] = entry
        return entry
