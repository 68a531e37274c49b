"""The contract of a processor cache type: a front half where requests are processed, an engine half where tensors are used.

The front decides, the engine obeys. A request opens a transaction; hits are pinned from look-up to commit; a commit, under one lock,
appends one numbered message (references, inserts, evictions) to the front half's outbox.

Whoever joins the two halves keeps three rules:

1. Before a request is handed to the engine, `take_messages` is called and what it gives is applied, in that order. Taking and
   sending happen under one lock (or on one thread), so that messages arrive in the order of the commits.
2. Every request that was committed is released exactly once in the engine half, also if it was aborted before it was sent; then the
   front half is told (`ProcessorCacheFront.release`). An abort is therefore sent behind the messages, like any other end of a request.
3. A `MultiModalCacheMissError` is given to `ProcessorCacheFront.drop`, and the request is processed and committed again under the
   same id. A miss releases nothing.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from types import TracebackType
from typing import TYPE_CHECKING, Self

if TYPE_CHECKING:
    from inset.cache.values import CacheExport, CacheMessage, CacheStats, CommittedItem, ItemToCommit, ProcessedItem
    from inset.config import CacheConfig
    from inset.inputs import ItemPlan, ItemTensors

__all__ = ["CacheTransaction", "Flight", "ProcessorCacheEngine", "ProcessorCacheFront"]


class Flight(ABC):
    """One item being processed; whoever joins first leads, the others wait. Thread-safe.

    When a leader leaves for a reason of its own (its client went away), the next participant becomes the leader. A leader must
    end with `complete`, `fail` or `leave`; the transaction leaves for its participants at commit and close. Until the last of them
    has left, the flight keeps the item. A request that leads some flights and waits for others completes its own first: then no
    two requests can wait for each other.
    """

    @property
    @abstractmethod
    def is_leader(self) -> bool:
        """This participant decodes and materialises."""

    @abstractmethod
    def complete(self, item: ProcessedItem) -> None:
        """Hands the processed item to all participants; the leader alone calls this. Does nothing after `leave`."""

    @abstractmethod
    def fail(self, error: BaseException) -> None:
        """Gives all participants an error that lies in the item itself, such as damaged bytes; the leader alone calls this.

        The error is not kept: who joins later tries afresh. Does nothing after `leave`.
        """

    @abstractmethod
    def leave(self) -> None:
        """Ends this participation; idempotent. A leaving leader is succeeded by the next participant."""

    @abstractmethod
    def wait(self, timeout_seconds: float) -> ProcessedItem | None:
        """Waits for the item; None means that this participant has become the leader.

        Raises:
            BaseException: A copy of what the leader gave to `fail`, so that each request can note its own item in it.
            TimeoutError: Nothing happened in time.
            InvariantError: This participant has left.
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
    def join_flight(self, mm_hash: bytes) -> Flight | None:
        """Joins the processing of an item that is not cached; joining again gives the same participation.

        None means that the item has been cached since it was looked up: it is pinned now, and `look_up` gives its plan.
        """

    @abstractmethod
    def commit(self, request_id: str, items: Sequence[ItemToCommit]) -> Sequence[CommittedItem]:
        """Stores what was processed, decides what is evicted, puts the message into the outbox and closes the transaction, in one step.

        Arrays are taken over, not copied, where both halves live in one process: nobody writes to them any more.

        Returns:
            How each item travels, in order.
        """

    @abstractmethod
    def close(self) -> None:
        """Releases pins and leaves flights; idempotent, and right after a commit too."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.close()


class ProcessorCacheFront(ABC):
    """The half where requests are processed. Thread-safe; hits never wait behind misses.

    Args:
        capacity_bytes: Most bytes of tensors held, exact.
    """

    def __init__(self, *, capacity_bytes: int) -> None:
        self._capacity_bytes = capacity_bytes

    @classmethod
    def from_config(cls, config: CacheConfig) -> Self:
        """Builds this half from the options of the processor cache; the composition root calls this."""
        return cls(capacity_bytes=config.capacity_bytes)

    def export(self) -> CacheExport | None:
        """Returns what `ProcessorCacheEngine.attach` needs, or None for a type whose halves share no memory.

        In one process it is handed over directly, else by `inset.cache.handover` over a unix socket.
        """
        return None

    @abstractmethod
    def begin(self) -> CacheTransaction:
        """Opens a transaction for one request."""

    def take_messages(self) -> Sequence[CacheMessage]:
        """Takes what the engine half must apply next out of the outbox, in the order of the commits. Bounded."""
        return ()

    @abstractmethod
    def drop(self, missing: Sequence[tuple[bytes, int]], *, lost_before: int = 0) -> None:
        """Forgets items that the engine half reported missing, where the insert is still the one reported.

        Args:
            missing: As in `MultiModalCacheMissError`.
            lost_before: As in `MultiModalCacheMissError`.
        """

    @abstractmethod
    def release(self, request_id: str) -> None:
        """Is told that the engine has released a request: leases of that request end."""

    def engine_restarted(self) -> None:  # noqa: B027 - nothing to do for a type whose front half owns the tensors
        """Is told that the engine half is gone, and with it all requests that were committed: leases end, what only it held is forgotten.

        Called before the next engine half is attached to a new `export`.
        """

    @abstractmethod
    def reset(self) -> None:
        """Forgets everything that nothing uses; the engine half follows through the outbox."""

    @property
    @abstractmethod
    def stats(self) -> CacheStats:
        """A snapshot of the counters."""

    @abstractmethod
    def close(self) -> None:
        """Frees what this half owns; idempotent."""


class ProcessorCacheEngine(ABC):
    """The half where tensors are used; called from one thread.

    Args:
        capacity_bytes: That of the front half, for the statistics.
    """

    def __init__(self, *, capacity_bytes: int) -> None:
        self._capacity_bytes = capacity_bytes

    @classmethod
    def from_config(cls, config: CacheConfig) -> Self:
        """Builds this half from the options of the processor cache; the composition root calls this."""
        return cls(capacity_bytes=config.capacity_bytes)

    def attach(self, export: CacheExport) -> None:  # noqa: B027 - nothing to do for a type whose halves share no memory
        """Reaches the memory that the front half exported, once, before the first request. The descriptors stay the caller's."""

    @abstractmethod
    def apply(self, message: CacheMessage) -> None:
        """Applies a committed message; called in the order of commits, for aborted requests too."""

    @abstractmethod
    def resolve(self, request_id: str, items: Sequence[CommittedItem]) -> Sequence[ItemTensors]:
        """Returns the tensors of a request's items, read-only, and holds them until `release`.

        The id is the one given to `commit`; where n answers share one prompt, the engine core resolves once and releases after the last.

        Raises:
            MultiModalCacheMissError: Some are not here.
        """

    @abstractmethod
    def release(self, request_id: str) -> None:
        """Ends the hold of one request; idempotent. Its tensors must not be read any more."""

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
