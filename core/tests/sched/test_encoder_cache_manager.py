from __future__ import annotations

from collections.abc import Callable

import pytest

from inset.errors import InvariantError
from inset.inputs import MultiModalFeature
from inset.sched.encoder_cache_manager import EncoderCacheManager
from inset.sched.encoder_planner import EncoderPlan


@pytest.fixture
def manager() -> EncoderCacheManager:
    return EncoderCacheManager(10)


@pytest.fixture(scope="session")
def items(make_item: Callable[..., MultiModalFeature]) -> list[MultiModalFeature]:
    """Three items of 4 embeds behind each other, each with a separator at both ends, and the first one again."""
    return [make_item(name, 6 * place, 6, ((1, 5),), item_index=place) for place, name in enumerate("ABCA")]


def run(*indices: int) -> EncoderPlan:
    return EncoderPlan(1, indices, indices)


def use(*indices: int) -> EncoderPlan:
    return EncoderPlan(1, indices)


def test_an_entry_is_unreferenced_but_kept_once_its_last_embed_is_passed(
    manager: EncoderCacheManager, items: list[MultiModalFeature]
) -> None:
    manager.take("r", items, run(0))
    manager.release_passed("r", items, 4)
    assert manager.room(0).num_free_embeds == 6
    manager.release_passed("r", items, 5)
    assert (manager.room(0).num_free_embeds, manager.num_used_embeds) == (10, 4)
    assert items[0].mm_hash in manager.room(0).unreferenced


def test_an_entry_stays_pinned_until_the_last_reference_is_released(manager: EncoderCacheManager, items: list[MultiModalFeature]) -> None:
    manager.take("r", items, run(0))
    manager.take("s", items, use(0))
    manager.release_all("r")
    assert items[0].mm_hash in manager.room(0).referenced
    manager.release_all("s")
    assert items[0].mm_hash not in manager.room(0).referenced


def test_an_item_twice_in_a_request_is_held_for_each_of_its_places(manager: EncoderCacheManager, items: list[MultiModalFeature]) -> None:
    manager.take("r", items, EncoderPlan(24, (0, 3), (0,)))
    manager.release_passed("r", items, 6)
    assert manager.room(0).num_free_embeds == 6
    manager.release_passed("r", items, 24)
    assert manager.room(0).num_free_embeds == 10


def test_the_entry_released_first_is_evicted_first_and_named_once(manager: EncoderCacheManager, items: list[MultiModalFeature]) -> None:
    manager.take("r", items, run(0))
    manager.take("s", items, run(1))
    manager.release_all("s")
    manager.release_all("r")
    manager.take("t", items, run(2))
    assert manager.take_freed() == (items[1].mm_hash,)
    assert manager.take_freed() == ()


def test_has_freed_tells_whether_the_worker_has_something_to_drop(manager: EncoderCacheManager, items: list[MultiModalFeature]) -> None:
    before = manager.has_freed
    manager.take("r", items, run(0))
    manager.drop(items[0].mm_hash)
    after_drop = manager.has_freed
    manager.take_freed()
    assert [before, after_drop, manager.has_freed] == [False, True, False]


def test_using_an_entry_again_makes_it_the_last_to_be_evicted(manager: EncoderCacheManager, items: list[MultiModalFeature]) -> None:
    for index in (0, 1):
        manager.take("r", items, run(index))
        manager.release_all("r")
    manager.take("s", items, use(0))
    manager.release_all("s")
    manager.take("t", items, run(2))
    assert manager.take_freed() == (items[1].mm_hash,)


def test_a_plan_never_evicts_what_it_uses(manager: EncoderCacheManager, items: list[MultiModalFeature]) -> None:
    for index in (0, 1):
        manager.take("r", items, run(index))
        manager.release_all("r")
    manager.take("s", items, EncoderPlan(18, (0, 2), (2,)))
    assert manager.take_freed() == (items[1].mm_hash,)


def test_an_allocation_beside_too_many_references_is_an_invariant_error(
    manager: EncoderCacheManager, items: list[MultiModalFeature]
) -> None:
    manager.take("r", items, run(0, 1))
    with pytest.raises(InvariantError, match="4 embeds: 8 of 10"):
        manager.take("s", items, run(2))


def test_a_dropped_entry_leaves_no_reference_behind_and_can_be_made_again(
    manager: EncoderCacheManager, items: list[MultiModalFeature]
) -> None:
    manager.take("r", items, run(0))
    manager.take("s", items, use(0))
    manager.drop(items[0].mm_hash)
    manager.drop(items[0].mm_hash)
    assert (manager.num_used_embeds, manager.room(0).num_free_embeds) == (0, 10)
    assert manager.take_freed() == (items[0].mm_hash,)
    manager.take("s", items, run(0))
    manager.audit(["s"])


def test_reset_drops_everything(manager: EncoderCacheManager, items: list[MultiModalFeature]) -> None:
    manager.take("r", items, run(0))
    manager.release_all("r")
    manager.take("s", items, run(1))
    manager.reset()
    assert manager.num_used_embeds == 0
    assert set(manager.take_freed()) == {items[0].mm_hash, items[1].mm_hash}


def test_hits_count_items_that_were_found_once_for_each_place(manager: EncoderCacheManager, items: list[MultiModalFeature]) -> None:
    manager.take("r", items, run(0))
    manager.take("r", items, use(0))
    assert manager.num_hits == 0
    manager.take("s", items, use(0))
    assert manager.num_hits == 1


def test_a_closed_room_offers_what_is_referenced_alone(manager: EncoderCacheManager, items: list[MultiModalFeature]) -> None:
    manager.take("r", items, run(0))
    manager.release_all("r")
    manager.take("s", items, run(1))
    room = manager.closed_room()
    assert list(room.referenced) == [items[1].mm_hash]
    assert (list(room.unreferenced), room.num_free_embeds, room.compute_budget) == ([], 0, 0)


def test_room_counts_unreferenced_entries_as_free(manager: EncoderCacheManager, items: list[MultiModalFeature]) -> None:
    manager.take("r", items, run(0))
    assert manager.room(7).num_free_embeds == 6
    manager.release_all("r")
    assert manager.room(7).num_free_embeds == 10
    assert manager.room(7).compute_budget == 7


def test_audit_names_a_holder_that_does_not_run(manager: EncoderCacheManager, items: list[MultiModalFeature]) -> None:
    manager.take("r", items, run(0))
    manager.audit(["r"])
    with pytest.raises(InvariantError, match="1 holders that do not run: \\['r'\\]"):
        manager.audit([])
