"""The `lru` type: the front half keeps plans and decides what goes, the engine half keeps the tensors; on a hit only the hash travels."""

from __future__ import annotations

import secrets
from collections import deque
from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Final

from inset.cache.front import Admission, IndexedFront, IndexedTransaction
from inset.cache.holds import HoldingEngine
from inset.cache.index import CacheEntry
from inset.cache.values import CacheMessage, CacheStats, CommittedItem, ItemToCommit, item_bytes, read_only
from inset.config import MIB

if TYPE_CHECKING:
    from inset.inputs import ItemTensors

__all__ = ["LruCacheEngine", "LruCacheFront"]

MAX_OUTBOX_BYTES: Final = 512 * MIB
MAX_OUTBOX_MESSAGES: Final = 4096


class LruCacheFront(IndexedFront[None]):
    """Decides; what was used least recently, and is not in use, goes first.

    A message is ``(epoch, sequence, request_id, references, inserts, evictions)``: references and evictions are hashes, inserts pairs of
    hash and tensors. An epoch is 16 random bytes; it changes whenever this half starts afresh. Numbers never start again.

    Args:
        capacity_bytes: Most bytes of tensors that the engine half holds for this half, exact.
        max_outbox_bytes: Most bytes of tensors that wait to be taken; what comes on top travels inline.
        max_outbox_messages: Most messages that wait to be taken; then nobody takes them, and everything is forgotten.
    """

    def __init__(
        self, *, capacity_bytes: int, max_outbox_bytes: int = MAX_OUTBOX_BYTES, max_outbox_messages: int = MAX_OUTBOX_MESSAGES
    ) -> None:
        super().__init__(capacity_bytes=capacity_bytes)
        self._max_outbox_bytes = max_outbox_bytes
        self._max_outbox_messages = max_outbox_messages
        self._outbox: deque[CacheMessage] = deque()
        self._outbox_bytes = 0
        self._epoch = secrets.token_bytes(16)
        self._sequence = 0

    def commit(self, transaction: IndexedTransaction[None], request_id: str, items: Sequence[ItemToCommit]) -> Sequence[CommittedItem]:
        tensors = {item.mm_hash: item.item.tensors for item in items if item.item is not None}
        with self.lock:
            if len(self._outbox) >= self._max_outbox_messages:
                self._start_afresh()
            room_bytes = self._max_outbox_bytes - self._outbox_bytes
            admission = self.admit(items, sequence=self._sequence, payload_of=lambda _: None, room_bytes=room_bytes)
            committed = [_travel(item, admission, transaction) for item in items]
            if admission.entries:
                inserted = {entry.mm_hash: tensors[entry.mm_hash] for entry in admission.inserted}
                self._outbox_bytes += sum(entry.num_bytes for entry in admission.inserted)
                references = tuple(mm_hash for mm_hash in admission.entries if mm_hash not in inserted)
                self._send(request_id, references, tuple(inserted.items()), admission.evicted)
            transaction.end()
            return committed

    def take_messages(self) -> Sequence[CacheMessage]:
        with self.lock:
            messages, self._outbox = self._outbox, deque()
            self._outbox_bytes = 0
            return tuple(messages)

    def forget(self, entries: Sequence[CacheEntry[None]]) -> None:
        super().forget(entries)
        if entries:
            self._send("", (), (), entries)

    def engine_restarted(self) -> None:
        with self.lock:
            self._start_afresh()

    def _start_afresh(self) -> None:
        super().forget(list(self.index))
        self._outbox.clear()
        self._outbox_bytes = 0
        self._epoch = secrets.token_bytes(16)

    def _send(
        self,
        request_id: str,
        references: tuple[bytes, ...],
        inserts: tuple[tuple[bytes, ItemTensors], ...],
        evicted: Sequence[CacheEntry[None]],
    ) -> None:
        evictions = tuple(entry.mm_hash for entry in evicted)
        self._outbox.append((self._epoch, self._sequence, request_id, references, inserts, evictions))
        self._sequence += 1


def _travel(item: ItemToCommit, admission: Admission[None], transaction: IndexedTransaction[None]) -> CommittedItem:
    entry = admission.entries.get(item.mm_hash)
    if entry is None and item.item is not None:
        return CommittedItem(item.mm_hash, item.item.tensors)
    # A pinned item that was dropped since is still referred to: the engine half reports it missing, and it is sent again.
    entry = entry or transaction.find_pinned(item.mm_hash)
    return CommittedItem(item.mm_hash, None, entry.sequence)


class LruCacheEngine(HoldingEngine):
    """Obeys: keeps what the front half's messages say, and for each request what it refers to."""

    def __init__(self, *, capacity_bytes: int) -> None:
        super().__init__(capacity_bytes=capacity_bytes)
        self._items: dict[bytes, ItemTensors] = {}
        self._num_bytes = self._num_inserts = self._num_evictions = 0
        self._epoch = b""
        self._next_sequence = 0

    def apply(self, message: CacheMessage) -> None:
        epoch, sequence, request_id, references, inserts, evictions = message
        if epoch != self._epoch or sequence != self._next_sequence:
            self._clear()
            self.lost_before = sequence
        self._epoch, self._next_sequence = epoch, sequence + 1
        for mm_hash, tensors in inserts:
            self._insert(mm_hash, read_only(tensors))
        # What the request needs becomes its own before anything is evicted: later messages may run ahead of the request.
        for mm_hash in (*references, *(mm_hash for mm_hash, _ in inserts)):
            if mm_hash in self._items:
                self.holds.put(request_id, mm_hash, self._items[mm_hash])
        for mm_hash in evictions:
            self._num_evictions += self._discard(mm_hash)

    def find(self, request_id: str, item: CommittedItem) -> ItemTensors | None:
        return self.holds.get(request_id, item.mm_hash) or self._items.get(item.mm_hash)

    def get_sequence(self, item: CommittedItem) -> int:
        sequence: int = item.handle
        return sequence

    def reset(self) -> None:
        self._clear()
        self.lost_before = self._next_sequence

    @property
    def stats(self) -> CacheStats:
        return replace(
            super().stats,
            num_inserts=self._num_inserts,
            num_evictions=self._num_evictions,
            num_items=len(self._items),
            num_bytes=self._num_bytes,
            capacity_bytes=self._capacity_bytes,
        )

    def close(self) -> None:
        super().close()
        self._clear()

    def _insert(self, mm_hash: bytes, tensors: ItemTensors) -> None:
        self._discard(mm_hash)
        self._items[mm_hash] = tensors
        self._num_bytes += item_bytes(tensors)
        self._num_inserts += 1

    def _discard(self, mm_hash: bytes) -> bool:
        tensors = self._items.pop(mm_hash, None)
        if tensors is not None:
            self._num_bytes -= item_bytes(tensors)
        return tensors is not None

    def _clear(self) -> None:
        self._items.clear()
        self._num_bytes = 0
