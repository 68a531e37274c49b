"""The books of a front half."""

import pytest

from inset.cache.index import CacheEntry, CacheIndex
from inset.inputs import ItemPlan


def make_index(*sizes: int, capacity_bytes: int = 100) -> tuple[CacheIndex[None], list[CacheEntry[None]]]:
    index: CacheIndex[None] = CacheIndex(capacity_bytes)
    plan = ItemPlan(num_tokens=1, num_embeds=1)
    entries = [CacheEntry(bytes([number]) * 32, plan, size, number, None) for number, size in enumerate(sizes)]
    for entry in entries:
        index.add(entry)
    return index, entries


@pytest.mark.parametrize(
    ("num_bytes", "pinned", "evicted"),
    [
        (10, [], []),
        (11, [], [0]),
        (41, [], [0, 1]),
        (41, [0], [1, 2]),
        (100, [], [0, 1, 2]),
        (71, [0], None),
        (70, [0], [1, 2]),
        (101, [], None),
    ],
)
def test_room_is_made_at_the_front_without_touching_what_is_pinned(num_bytes: int, pinned: list[int], evicted: list[int] | None) -> None:
    index, entries = make_index(30, 30, 30)
    for number in pinned:
        index.pin(entries[number])
    victims = index.make_room(num_bytes)
    assert victims == (None if evicted is None else [entries[number] for number in evicted])
    assert index.num_evictions == len(evicted or [])
    assert index.num_bytes == 90 - 30 * len(evicted or [])


def test_item_that_was_taken_out_stays_pinned_until_its_last_use_ends() -> None:
    index, (entry,) = make_index(30)
    index.pin(entry)
    index.pin(entry)
    index.remove(entry)
    assert (index.num_bytes, entry.is_live, index.pinned) == (0, False, [entry])
    index.unpin(entry)
    assert index.pinned == [entry]
    index.unpin(entry)
    assert index.pinned == []


def test_bytes_of_what_is_no_longer_live_take_no_room() -> None:
    index, (entry, _) = make_index(60, 40)
    index.pin(entry)
    index.remove(entry)
    assert index.make_room(60) == []


def test_lost_items_are_those_reported_and_those_before_a_number() -> None:
    index, entries = make_index(10, 10, 10, 10)
    assert index.find_lost({entries[3].mm_hash: 3, entries[2].mm_hash: 7, b"?" * 32: 0}, lost_before=0) == [entries[3]]
    assert index.find_lost({entries[3].mm_hash: 3}, lost_before=2) == [entries[0], entries[1], entries[3]]
