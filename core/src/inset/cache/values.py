"""What a request and the two halves of a processor cache hand to one another: items, messages, memory, counts and misses."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeAlias

if TYPE_CHECKING:
    from inset.inputs import ItemPlan, ItemTensors

__all__ = [
    "CacheExport",
    "CacheMessage",
    "CacheStats",
    "CommittedItem",
    "ItemToCommit",
    "MultiModalCacheMissError",
    "ProcessedItem",
    "item_bytes",
    "read_only",
]

CacheMessage: TypeAlias = "tuple[Any, ...]"
"""What a front half tells its engine half: text, bytes, integers, numpy arrays, and tuples (or lists) and dictionaries of them."""


def item_bytes(tensors: ItemTensors) -> int:
    """Returns the exact size of an item's tensors, in bytes."""
    return sum(array.nbytes for array in tensors.values())


def read_only(tensors: ItemTensors) -> ItemTensors:
    """Returns read-only views of an item's tensors; nothing is copied."""
    views = {name: array.view() for name, array in tensors.items()}
    for view in views.values():
        view.flags.writeable = False
    return views


class MultiModalCacheMissError(Exception):
    """The engine half lacks items that the front half believed it had; the front sends them again by itself.

    Attributes:
        missing: (mm_hash, sequence number of the insert that the front relied on) of each.
        lost_before: Everything inserted before the message of this number is gone too, because the engine half was restarted, was
            reset or missed a message; 0 where only `missing` is.
    """

    def __init__(self, missing: Sequence[tuple[bytes, int]], *, lost_before: int = 0) -> None:
        super().__init__(f"{len(missing)} item(s) are not in the engine half of the processor cache")
        self.missing = tuple((mm_hash, sequence) for mm_hash, sequence in missing)
        self.lost_before = lost_before

    def __reduce__(self) -> tuple[Any, ...]:
        return (_rebuild_miss, (self.missing, self.lost_before))


def _rebuild_miss(missing: Sequence[tuple[bytes, int]], lost_before: int) -> MultiModalCacheMissError:
    return MultiModalCacheMissError(missing, lost_before=lost_before)


@dataclass(frozen=True, slots=True)
class CacheExport:
    """What an engine half needs once to reach memory that its front half owns.

    Attributes:
        values: Plain values: text, bytes, integers.
        fds: Open file descriptors. They belong to the front half, or, in another process, to whoever received them there.
    """

    values: tuple[str | bytes | int, ...] = ()
    fds: tuple[int, ...] = ()


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
        num_hits: Items of requests whose first look-up found them; an item counts once for each request.
        num_misses: Items of requests whose first look-up did not.
        num_inserts: Items stored.
        num_evictions: Items dropped for room.
        num_items: Items held.
        num_bytes: Bytes held, exact.
        capacity_bytes: Most bytes held.
        num_leases: Items that requests still use; 0 when idle.
    """

    num_hits: int = 0
    num_misses: int = 0
    num_inserts: int = 0
    num_evictions: int = 0
    num_items: int = 0
    num_bytes: int = 0
    capacity_bytes: int = 0
    num_leases: int = 0
