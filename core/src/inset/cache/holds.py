"""What the engine halves of the built-in types share: tensors that are held for each request until it ends."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from typing import TYPE_CHECKING, final

from inset.cache.base import ProcessorCacheEngine
from inset.cache.values import CacheMessage, CacheStats, CommittedItem, MultiModalCacheMissError, read_only

if TYPE_CHECKING:
    from inset.inputs import ItemTensors

__all__ = ["HoldingEngine", "RequestHolds"]


class RequestHolds:
    """The tensors of each request's items by hash."""

    def __init__(self) -> None:
        self._tensors: dict[str, dict[bytes, ItemTensors]] = {}

    def __len__(self) -> int:
        """How many items requests hold, an item counted once for each request."""
        return sum(len(held) for held in self._tensors.values())

    def put(self, request_id: str, mm_hash: bytes, tensors: ItemTensors) -> None:
        """Keeps an item for a request."""
        self._tensors.setdefault(request_id, {})[mm_hash] = tensors

    def get(self, request_id: str, mm_hash: bytes) -> ItemTensors | None:
        """Returns what is kept, or None."""
        return self._tensors.get(request_id, {}).get(mm_hash)

    def release(self, request_id: str) -> None:
        """Ends what one request holds; idempotent."""
        self._tensors.pop(request_id, None)

    def clear(self) -> None:
        """Ends what all requests hold."""
        self._tensors.clear()


class HoldingEngine(ProcessorCacheEngine):
    """An engine half that holds what it resolved. A type says where it finds the items whose tensors did not travel.

    Attributes:
        holds: What requests hold.
        num_hits: As in `CacheStats`.
        num_misses: As in `CacheStats`.
        lost_before: As in `MultiModalCacheMissError`.
    """

    def __init__(self, *, capacity_bytes: int) -> None:
        super().__init__(capacity_bytes=capacity_bytes)
        self.holds = RequestHolds()
        self.num_hits = 0
        self.num_misses = 0
        self.lost_before = 0

    @abstractmethod
    def find(self, request_id: str, item: CommittedItem) -> ItemTensors | None:
        """Returns the tensors of an item that came without, read-only, or None where they are not here."""

    @abstractmethod
    def get_sequence(self, item: CommittedItem) -> int:
        """Returns the number of the insert that the front half relied on."""

    @final
    def resolve(self, request_id: str, items: Sequence[CommittedItem]) -> Sequence[ItemTensors]:
        found = [self.find(request_id, item) if item.tensors is None else read_only(item.tensors) for item in items]
        missing = [(item.mm_hash, self.get_sequence(item)) for item, tensors in zip(items, found, strict=True) if tensors is None]
        self.num_misses += len(missing)
        if missing:
            raise MultiModalCacheMissError(missing, lost_before=self.lost_before)
        resolved = [tensors for tensors in found if tensors is not None]
        for item, tensors in zip(items, resolved, strict=True):
            self.num_hits += item.tensors is None
            self.holds.put(request_id, item.mm_hash, tensors)
        return resolved

    def apply(self, message: CacheMessage) -> None:
        """Nothing: unless a type says otherwise, its front half sends no messages."""

    @final
    def release(self, request_id: str) -> None:
        self.holds.release(request_id)

    def reset(self) -> None:
        """Nothing: unless a type says otherwise, only requests hold anything here."""

    @property
    def stats(self) -> CacheStats:
        return CacheStats(num_hits=self.num_hits, num_misses=self.num_misses, num_leases=len(self.holds))

    def close(self) -> None:
        self.holds.clear()
