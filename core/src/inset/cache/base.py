"""The contract of a processor cache type: a front half where requests are processed, an engine half where tensors are used.

The front decides, the engine obeys. A request opens a transaction; hits are pinned from look-up to commit; a commit, under one lock,
appends one numbered message (references, inserts, evictions) that the engine half applies whatever happens to the request afterwards.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self

if TYPE_CHECKING:
    from inset.inputs import ItemPlan, ItemTensors

__all__ = [
    "CacheStats",
    "CacheTransaction",
    "CommittedItem",
    "Flight",
    "ItemToCommit",
    "MultiModalCacheMissError",
    "ProcessedItem",
    "ProcessorCacheEngine",
    "ProcessorCacheFront",
    "item_bytes",
]


def item_bytes(tensors: ItemTensors) -> int:
    """Returns the exact size of an item's tensors, in bytes."""
    return sum(array.nbytes for array in tensors.values())


class MultiModalCacheMissError(Exception):
    """The engine half lacks items that the front half believed it had; the front sends them again by itself.

    Attributes:
        missing: (mm_hash, sequence number of the insert that the front relied on) of each.
    """

    def __init__(self, missing: Sequence[tuple[bytes, int]]) -> None:
        super().__init__(f"{len(missing)} item(s) are not in the engine half of the processor cache")
        self.missing = tuple(missing)


@dataclass(frozen=True, slots=True)
class ProcessedItem:
    """One processed item: its exact plan and its tensors."""

    plan: ItemPlan
    tensors: ItemTensors


@dataclass(frozen=True, slots=True)
class ItemToCommit:
    """One item of a request that is about to be sent.

    Attributes:
        mm_hash: Identity, 32 bytes.
        item: What was processed, or None for a hit that the transaction has pinned.
    """

    mm_hash: bytes
    item: ProcessedItem | None


@dataclass(frozen=True, slots=True)
class CommittedItem:
    """How one item travels to the engine.

    Attributes:
        mm_hash: Identity, 32 bytes.
        tensors: Sent inline, or None where the engine half supplies them.
        handle: What the engine half needs to find them (its own plain values), or None.
    """

    mm_hash: bytes
    tensors: ItemTensors | None
    handle: Any = None


@dataclass(frozen=True, slots=True)
class CacheStats:
    """Counters since start, and what is held now.

    Attributes:
        num_hits: Look-ups that found an item.
        num_misses: Look-ups that did not.
        num_inserts: Items stored.
        num_evictions: Items dropped for room.
        num_items: Items held.
        num_bytes: Bytes held, exact.
        capacity_bytes: Most bytes held.
        num_leases: Items that something still uses.
    """

    num_hits: int = 0
    num_misses: int = 0
    num_inserts: int = 0
    num_evictions: int = 0
    num_items: int = 0
    num_bytes: int = 0
    capacity_bytes: int = 0
    num_leases: int = 0


class Flight(ABC):
    """One item being processed; whoever joins first leads, the others wait. Thread-safe.

    A participant must end with `complete`, `fail` or `leave`. When a leader leaves or fails for a reason of its own (its client went away),
    the next one waiting becomes the leader.
    """

    @property
    @abstractmethod
    def is_leader(self) -> bool:
        """This participant decodes and materialises."""

    @abstractmethod
    def complete(self, item: ProcessedItem) -> None:
        """Hands the processed item to all participants; the leader alone calls this."""

    @abstractmethod
    def fail(self, error: BaseException) -> None:
        """Gives all participants an error that lies in the item itself, such as damaged bytes; the leader alone calls this."""

    @abstractmethod
    def leave(self) -> None:
        """Ends this participation; idempotent. A leaving leader is succeeded by the next participant."""

    @abstractmethod
    def wait(self, timeout_seconds: float) -> ProcessedItem | None:
        """Waits for the item; None means that this participant has become the leader.

        Raises:
            BaseException: What the leader gave to `fail`.
            TimeoutError: Nothing happened in time.
        """

    @abstractmethod
    async def wait_async(self, timeout_seconds: float) -> ProcessedItem | None:
        """The same without blocking the event loop; cancelling it only ends the waiting."""


class CacheTransaction(ABC):
    """One request's dealings with the front half; the request's apply state owns and closes it. Thread-safe towards other transactions."""

    @abstractmethod
    def look_up(self, mm_hash: bytes) -> ItemPlan | None:
        """Returns the plan of a cached item and pins it until commit or close, or None."""

    @abstractmethod
    def get_tensors(self, mm_hash: bytes) -> ItemTensors | None:
        """Returns the tensors of a pinned item, or None where only the engine half holds them."""

    @abstractmethod
    def join_flight(self, mm_hash: bytes) -> Flight:
        """Joins the processing of an item that is not cached."""

    @abstractmethod
    def commit(self, request_id: str, items: Sequence[ItemToCommit]) -> tuple[Sequence[CommittedItem], Any]:
        """Stores what was processed, decides what is evicted, and releases the pins, in one step under one lock.

        Returns:
            How each item travels, in order, and the message for the engine half (plain values, numpy arrays and bytes) or None.
        """

    @abstractmethod
    def close(self) -> None:
        """Releases pins and leaves flights; idempotent, and right after a commit too."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.close()


class ProcessorCacheFront(ABC):
    """The half where requests are processed. Thread-safe; hits never wait behind misses."""

    @abstractmethod
    def begin(self) -> CacheTransaction:
        """Opens a transaction for one request."""

    @abstractmethod
    def drop(self, missing: Sequence[tuple[bytes, int]]) -> None:
        """Forgets items that the engine half reported missing, where the insert is still the one reported."""

    @abstractmethod
    def release(self, request_id: str) -> None:
        """Is told that the engine has released a request: leases of that request end."""

    @abstractmethod
    def reset(self) -> Any:
        """Forgets everything that nothing uses, and returns the message for the engine half or None."""

    @property
    @abstractmethod
    def stats(self) -> CacheStats:
        """A snapshot of the counters."""

    @abstractmethod
    def close(self) -> None:
        """Frees what this half owns; idempotent."""


class ProcessorCacheEngine(ABC):
    """The half where tensors are used; called from one thread."""

    @abstractmethod
    def apply(self, message: Any) -> None:
        """Applies a committed message; called in the order of commits, for aborted requests too."""

    @abstractmethod
    def resolve(self, request_id: str, items: Sequence[CommittedItem]) -> Sequence[ItemTensors]:
        """Returns the tensors of a request's items and holds them until `release`.

        Raises:
            MultiModalCacheMissError: Some are not here.
        """

    @abstractmethod
    def release(self, request_id: str) -> None:
        """Ends the hold of one request; idempotent."""

    @abstractmethod
    def reset(self) -> None:
        """Forgets everything that no request holds."""

    @property
    @abstractmethod
    def stats(self) -> CacheStats:
        """A snapshot of the counters."""

    @abstractmethod
    def close(self) -> None:
        """Frees what this half owns; idempotent."""
