"""The books of a front half: which items are held, which of them must stay, and which go first. Not thread-safe; no tensors."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Generic, TypeVar

if TYPE_CHECKING:
    from inset.inputs import ItemPlan

__all__ = ["CacheEntry", "CacheIndex"]

P = TypeVar("P")


@dataclass(slots=True, eq=False)
class CacheEntry(Generic[P]):
    """One item that a front half holds.

    Attributes:
        mm_hash: Identity, 32 bytes.
        plan: Its exact plan.
        num_bytes: Size of its tensors, in bytes.
        sequence: Number of the message, or of the write, that stored it.
        payload: What the cache type keeps of it here.
        num_pins: How many uses keep it from being evicted.
        is_live: False once it has been taken out of the index.
    """

    mm_hash: bytes
    plan: ItemPlan
    num_bytes: int
    sequence: int
    payload: P
    num_pins: int = 0
    is_live: bool = True


class CacheIndex(Generic[P]):
    """Items by hash, the one to evict first at the front.

    Args:
        capacity_bytes: Most bytes that live items may have together.
    """

    def __init__(self, capacity_bytes: int) -> None:
        self.capacity_bytes = capacity_bytes
        self.num_bytes = 0
        self.num_inserts = 0
        self.num_evictions = 0
        self._live: OrderedDict[bytes, CacheEntry[P]] = OrderedDict()
        self._pinned: dict[int, CacheEntry[P]] = {}

    def __len__(self) -> int:
        return len(self._live)

    def __iter__(self) -> Iterator[CacheEntry[P]]:
        """The live items, the one to evict first at the front."""
        return iter(self._live.values())

    def get(self, mm_hash: bytes) -> CacheEntry[P] | None:
        """Returns a live item, or None."""
        return self._live.get(mm_hash)

    def touch(self, entry: CacheEntry[P]) -> None:
        """Makes a live item the last one to evict."""
        self._live.move_to_end(entry.mm_hash)

    def pin(self, entry: CacheEntry[P]) -> None:
        """Keeps an item from being evicted until `unpin` has been called as often."""
        entry.num_pins += 1
        self._pinned[id(entry)] = entry

    def unpin(self, entry: CacheEntry[P]) -> None:
        """Ends one pin."""
        assert entry.num_pins > 0
        entry.num_pins -= 1
        if entry.num_pins == 0:
            del self._pinned[id(entry)]

    @property
    def pinned(self) -> list[CacheEntry[P]]:
        """The items that something uses, those that are no longer live included."""
        return list(self._pinned.values())

    def add(self, entry: CacheEntry[P]) -> None:
        """Stores an item that is not there and for which there is room."""
        assert entry.mm_hash not in self._live
        assert self.num_bytes + entry.num_bytes <= self.capacity_bytes
        self._live[entry.mm_hash] = entry
        self.num_bytes += entry.num_bytes
        self.num_inserts += 1

    def remove(self, entry: CacheEntry[P]) -> None:
        """Takes a live item out, also one that is pinned."""
        del self._live[entry.mm_hash]
        entry.is_live = False
        self.num_bytes -= entry.num_bytes

    def evict(self, entry: CacheEntry[P]) -> None:
        """Takes a live item out for room."""
        assert entry.num_pins == 0
        self.remove(entry)
        self.num_evictions += 1

    def make_room(self, num_bytes: int) -> list[CacheEntry[P]] | None:
        """Evicts as few of the first items as make room, or evicts nothing and returns None where the pinned ones leave too little."""
        excess = self.num_bytes + num_bytes - self.capacity_bytes
        if excess <= 0:
            return []
        pinned_bytes = sum(entry.num_bytes for entry in self._pinned.values() if entry.is_live)
        if pinned_bytes + num_bytes > self.capacity_bytes:
            return None
        victims: list[CacheEntry[P]] = []
        for entry in self:
            if excess <= 0:
                break
            if entry.num_pins == 0:
                victims.append(entry)
                excess -= entry.num_bytes
        for entry in victims:
            self.evict(entry)
        return victims

    def find_lost(self, missing: Mapping[bytes, int], lost_before: int) -> list[CacheEntry[P]]:
        """Returns the live items that an engine half has reported missing, by hash and sequence number, or by a bound on that."""
        return [entry for entry in self if entry.sequence < lost_before or missing.get(entry.mm_hash) == entry.sequence]
