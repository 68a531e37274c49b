"""Both halves of a processor cache type on the bench, and items to put through them."""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import Final

import numpy as np

from inset.cache.base import CacheTransaction, ProcessorCacheEngine, ProcessorCacheFront
from inset.cache.values import CommittedItem, ItemToCommit, MultiModalCacheMissError, ProcessedItem
from inset.inputs import ItemPlan, ItemTensors
from inset.testing.conformance.engine_process import EngineProcess, RemoteEngine
from inset.testing.sameness import assert_same_tensors

__all__ = ["ITEM_BYTES", "LIMIT_SECONDS", "CachePair", "hash_of", "make_item"]

LIMIT_SECONDS: Final = 20.0
ITEM_BYTES: Final = 1024


def make_item(name: str, num_bytes: int = ITEM_BYTES) -> ProcessedItem:
    """Returns an item whose content follows from its name, as one uint8 array of `num_bytes`."""
    pixels = np.frombuffer(random.Random(name).randbytes(num_bytes), np.uint8)
    return ProcessedItem(ItemPlan(num_tokens=1 + len(name), num_embeds=1 + len(name), tensor_bytes=num_bytes), {"pixel_values": pixels})


def hash_of(name: str, num_bytes: int = ITEM_BYTES) -> bytes:
    """Returns the identity of what `make_item` makes."""
    return f"{name}/{num_bytes}".encode().rjust(32, b".")


class CachePair:
    """Both halves, joined as the server joins them, with a count of what had to be processed."""

    def __init__(
        self,
        front_class: type[ProcessorCacheFront],
        engine_class: type[ProcessorCacheEngine],
        *,
        capacity_bytes: int,
        process: EngineProcess | None,
    ) -> None:
        self._front_class, self._engine_class, self._process = front_class, engine_class, process
        self.capacity_bytes = capacity_bytes
        self.num_processed = 0
        self.num_misses_in_engine = 0
        self.front = front_class(capacity_bytes=capacity_bytes)
        self.start_engine()

    def start_engine(self) -> None:
        """Starts an engine half, or another one in its place."""
        if self._process is None:
            self.engine = self._engine_class(capacity_bytes=self.capacity_bytes)
        else:
            self.engine = RemoteEngine(self._process, self._engine_class, capacity_bytes=self.capacity_bytes)
        export = self.front.export()
        if export is not None:
            self.engine.attach(export)

    def move_engine(self, process: EngineProcess) -> None:
        """Starts an engine half in another process."""
        self._process = process
        self.start_engine()

    def start_front(self) -> None:
        """Starts another front half in place of this one; the engine half stays."""
        self.front.close()
        self.front = self._front_class(capacity_bytes=self.capacity_bytes)
        export = self.front.export()
        if export is not None:
            self.engine.attach(export)

    def process(self, transaction: CacheTransaction, item: ProcessedItem, mm_hash: bytes) -> ItemToCommit:
        """Does what `processing` does for one item: looks it up, and processes it or waits for whoever does."""
        if transaction.look_up(mm_hash) is not None:
            return ItemToCommit(mm_hash, None)
        flight = transaction.join_flight(mm_hash)
        if flight is None:
            return ItemToCommit(mm_hash, None)
        got = None if flight.is_leader else flight.wait(LIMIT_SECONDS)
        if got is None:
            self.num_processed += 1
            flight.complete(item)
            got = item
        return ItemToCommit(mm_hash, got)

    def commit(self, request_id: str, names: Sequence[str], num_bytes: int = ITEM_BYTES) -> Sequence[CommittedItem]:
        """Processes and commits a request; its messages are not delivered yet."""
        with self.front.begin() as transaction:
            items = [self.process(transaction, make_item(name, num_bytes), hash_of(name, num_bytes)) for name in names]
            return transaction.commit(request_id, items)

    def deliver(self) -> None:
        """Takes the outbox to the engine half."""
        for message in self.front.take_messages():
            self.engine.apply(message)

    def resolve(self, request_id: str, committed: Sequence[CommittedItem]) -> Sequence[ItemTensors]:
        """Delivers, and resolves at the engine half."""
        self.deliver()
        return self.engine.resolve(request_id, committed)

    def serve(self, request_id: str, names: Sequence[str], num_bytes: int = ITEM_BYTES) -> None:
        """Takes one request all the way and compares what arrives; a miss is sent again, at most twice. The request stays held."""
        for attempt in range(3):
            committed = self.commit(request_id, names, num_bytes)
            try:
                tensors = self.resolve(request_id, committed)
            except MultiModalCacheMissError as error:
                assert attempt < 2, "the item did not arrive in three attempts"
                self.num_misses_in_engine += 1
                self.front.drop(error.missing, lost_before=error.lost_before)
                continue
            for name, got in zip(names, tensors, strict=True):
                assert_same_tensors(got, make_item(name, num_bytes).tensors)
            return

    def release(self, request_id: str) -> None:
        """Ends a request as the engine core does."""
        self.deliver()
        self.engine.release(request_id)
        self.front.release(request_id)

    def assert_idle(self) -> None:
        """Nothing is held, and after a reset nothing is stored."""
        assert self.front.stats.num_leases == 0
        assert self.engine.stats.num_leases == 0
        self.front.reset()
        self.deliver()
        assert (self.front.stats.num_items, self.front.stats.num_bytes) == (0, 0)
        assert (self.engine.stats.num_items, self.engine.stats.num_bytes) == (0, 0)

    def close(self) -> None:
        """Closes both halves."""
        self.engine.close()
        self.front.close()
