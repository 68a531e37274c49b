"""Which items of a request have to be encoded for a window of its positions. Values in, values out."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple

from inset.inputs import MultiModalFeature

__all__ = ["NO_ROOM", "EncoderPlan", "EncoderRoom", "plan_encoder_inputs"]


class EncoderRoom(NamedTuple):
    """What the encoder cache and this step still offer.

    Attributes:
        referenced: Hashes in the cache that a request holds; to use them costs nothing.
        unreferenced: Hashes in the cache that nobody holds; to use one takes its embeds from `num_free_embeds`.
        num_free_embeds: Embeds that are free or taken by unreferenced entries.
        compute_budget: Embeds that encoders may still make in this step.
    """

    referenced: Collection[bytes]
    unreferenced: Collection[bytes]
    num_free_embeds: int
    compute_budget: int


NO_ROOM: Final = EncoderRoom((), (), 0, 0)
"""For a request that may use nothing: its window ends before its first item."""


@dataclass(frozen=True, slots=True)
class EncoderPlan:
    """A window and the items that it needs.

    Attributes:
        num_tokens: Length of the window after cutting, in positions; 0 where it cannot begin.
        needed: Indices of the items with an embed in the window, in the order of the prompt.
        run: Those of `needed` whose encoder has to run.
        num_run_embeds: Embeds that this takes from the compute budget.
    """

    num_tokens: int
    needed: tuple[int, ...] = ()
    run: tuple[int, ...] = ()
    num_run_embeds: int = 0


def plan_encoder_inputs(
    items: Sequence[MultiModalFeature], start: int, stop: int, *, room: EncoderRoom, is_chunking_items: bool = True
) -> EncoderPlan:
    """Returns how far a window can reach, and which encoders have to run for it.

    An item counts only where one of its embeds lies in the window: a window over its separators alone needs nothing. What is cached is
    used; what has no room or no budget cuts the window just before the item, or to nothing where the window begins inside it. An item
    that occurs twice is encoded once. An item that brings its own embeddings takes room, but no compute budget.

    Args:
        items: The request's items, ascending and disjoint.
        start: First position of the window, in tokens from the start of the prompt.
        stop: Position behind the last one.
        room: What is left for this request.
        is_chunking_items: False keeps the positions of an item in one window; a window that begins inside an item, behind a prefix hit,
            then reaches its end or is nothing.
    """
    draft = _Draft(room)
    first = bisect_right(items, start, key=lambda item: item.placeholder.end)
    for index in range(first, len(items)):
        item, place = items[index], items[index].placeholder
        if place.offset >= stop:
            break
        if not is_chunking_items and place.end > stop:
            stop = max(start, place.offset)
            break
        if place.num_embeds_before(stop - place.offset) == place.num_embeds_before(start - place.offset):
            continue
        if not draft.take(index, item):
            stop = max(start, place.offset)
            break
    if stop <= start:
        return EncoderPlan(0)
    return EncoderPlan(stop - start, tuple(draft.needed), tuple(draft.run), draft.num_run_embeds)


class _Draft:
    """A plan in the making, and the room that it leaves."""

    def __init__(self, room: EncoderRoom) -> None:
        self.room = room
        self.num_free_embeds = room.num_free_embeds
        self.needed: list[int] = []
        self.run: list[int] = []
        self.num_run_embeds = 0
        self.taken: set[bytes] = set()

    def take(self, index: int, item: MultiModalFeature) -> bool:
        """Takes room for an item; returns False, and takes nothing, where there is not enough."""
        if item.mm_hash not in self.room.referenced and item.mm_hash not in self.taken:
            num_embeds = item.num_embeds
            is_cached = item.mm_hash in self.room.unreferenced
            cost = 0 if is_cached or item.is_embedding else num_embeds
            if num_embeds > self.num_free_embeds or cost > self.room.compute_budget - self.num_run_embeds:
                return False
            self.taken.add(item.mm_hash)
            self.num_free_embeds -= num_embeds
            self.num_run_embeds += cost
            if not is_cached:
                self.run.append(index)
        self.needed.append(index)
        return True
