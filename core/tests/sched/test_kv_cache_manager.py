from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from inset.inputs import EngineRequest, MultiModalFeature
from inset.sched.kv_cache_manager import KVCacheManager
from inset.sched.request import Request

MakeItem = Callable[..., MultiModalFeature]
MakeState = Callable[..., Request]


@pytest.fixture
def manager() -> KVCacheManager:
    return KVCacheManager(num_blocks=8, block_size=4, enable_prefix_caching=True)


@pytest.fixture(scope="session")
def make_state(make_request: Callable[..., EngineRequest]) -> MakeState:
    def make(*args: Any, **changes: Any) -> Request:
        return Request(make_request("r", *args, **changes), arrival=1, max_request_tokens=1000, now=0.0)

    return make


def compute(manager: KVCacheManager, request: Request) -> Request:
    """Takes a request in and computes all of its tokens."""
    manager.admit(request, manager.find_prefix(request))
    request.num_computed_tokens = request.num_tokens
    manager.register_computed(request)
    return request


def hit(manager: KVCacheManager, request: Request) -> int:
    return len(manager.find_prefix(request)) * manager.block_size


def test_admit_gives_blocks_for_all_tokens(manager: KVCacheManager, make_state: MakeState) -> None:
    request = make_state(9)
    manager.admit(request, [])
    assert (len(request.block_ids), manager.num_used_blocks) == (3, 3)


def test_grow_gives_a_block_only_when_a_token_needs_one(manager: KVCacheManager, make_state: MakeState) -> None:
    request = make_state(8)
    manager.admit(request, [])
    assert manager.grow(request) == ()
    request.token_ids.append(1)
    assert manager.grow(request) == (request.block_ids[2],)
    manager.pool.allocate(5)
    request.token_ids += [1] * 4
    assert manager.grow(request) is None
    assert len(request.block_ids) == 3


def test_free_returns_all_blocks_and_may_be_called_again(manager: KVCacheManager, make_state: MakeState) -> None:
    request = compute(manager, make_state(9))
    manager.free(request)
    manager.free(request)
    assert (request.block_ids, manager.num_used_blocks) == ([], 0)


@pytest.mark.parametrize(
    ("first", "second", "expected"), [(12, 13, 12), (12, 12, 8), (12, 11, 8), (3, 3, 0), (4, 4, 0), (4, 5, 4), (9, 20, 8)]
)
def test_a_hit_covers_full_blocks_and_leaves_the_last_token_to_compute(
    manager: KVCacheManager, make_state: MakeState, first: int, second: int, expected: int
) -> None:
    compute(manager, make_state(first))
    assert hit(manager, make_state(second)) == expected


def test_shared_blocks_are_those_of_the_first_request_and_the_rest_is_its_own(manager: KVCacheManager, make_state: MakeState) -> None:
    one, two = compute(manager, make_state(12)), compute(manager, make_state(12))
    assert two.block_ids[:2] == one.block_ids[:2]
    assert two.block_ids[2] != one.block_ids[2]
    manager.pool.audit([one.block_ids, two.block_ids])
    assert (manager.num_prefix_queries, manager.num_prefix_hits) == (24, 8)


def test_blocks_are_found_only_after_they_have_been_computed(manager: KVCacheManager, make_state: MakeState) -> None:
    request = make_state(12)
    manager.admit(request, [])
    request.num_computed_tokens = 7
    manager.register_computed(request)
    assert hit(manager, make_state(12)) == 4


def test_output_tokens_are_found_like_a_prompt(manager: KVCacheManager, make_state: MakeState) -> None:
    request = make_state(6)
    request.token_ids += [1, 2, 3]
    compute(manager, request)
    assert hit(manager, make_state([*range(100, 106), 1, 2, 9, 9])) == 8


# Prompts of twelve equal tokens: what stands behind the tokens decides.
@pytest.mark.parametrize(
    ("first", "second", "expected"),
    [
        ([("A", 1, 10)], [("A", 1, 10)], 8),
        ([("A", 1, 10)], [("A", 2, 10)], 0),
        ([("A", 1, 10)], [("B", 1, 10)], 0),
        ([("A", 1, 10)], [], 0),
        ([("A", 4, 4)], [("A", 5, 4)], 4),
        ([("A", 0, 4), ("B", 4, 4)], [("A", 0, 4), ("C", 4, 4)], 4),
    ],
    ids=["ends_inside_the_item", "shifted", "other_item", "no_item", "shifted_in_the_second_block", "second_item_differs"],
)
def test_items_take_part_in_the_prefix(
    manager: KVCacheManager,
    make_state: MakeState,
    make_item: MakeItem,
    first: list[tuple[str, int, int]],
    second: list[tuple[str, int, int]],
    expected: int,
) -> None:
    compute(manager, make_state([5] * 12, [make_item(*place) for place in first]))
    assert hit(manager, make_state([5] * 12, [make_item(*place) for place in second])) == expected


@pytest.mark.parametrize(
    ("first", "second", "expected"),
    [
        ({"cache_salt": "a"}, {"cache_salt": "a"}, 8),
        ({"cache_salt": "a"}, {"cache_salt": "b"}, 0),
        ({"cache_salt": "a"}, {}, 0),
        ({"prompt_embeds": [[0.0]], "prompt_embeds_hash": b"x"}, {"prompt_embeds": [[0.0]], "prompt_embeds_hash": b"x"}, 8),
        ({"prompt_embeds": [[0.0]], "prompt_embeds_hash": b"x"}, {"prompt_embeds": [[0.0]], "prompt_embeds_hash": b"y"}, 0),
        ({"prompt_embeds": [[0.0]], "prompt_embeds_hash": b"x"}, {}, 0),
        ({"prompt_embeds": [[0.0]]}, {"prompt_embeds": [[0.0]]}, 0),
    ],
    ids=["same_salt", "other_salt", "no_salt", "same_embeds", "other_embeds", "no_embeds", "embeds_without_a_name"],
)
def test_salt_and_prompt_embeddings_take_part_in_the_prefix(
    manager: KVCacheManager, make_state: MakeState, first: dict[str, Any], second: dict[str, Any], expected: int
) -> None:
    compute(manager, make_state(12, **first))
    assert hit(manager, make_state(12, **second)) == expected


def test_without_prefix_caching_nothing_is_found(make_state: MakeState) -> None:
    manager = KVCacheManager(num_blocks=8, block_size=4, enable_prefix_caching=False)
    compute(manager, make_state(12))
    assert hit(manager, make_state(12)) == 0


def test_room_counts_found_blocks_that_are_free_as_taken(manager: KVCacheManager, make_state: MakeState) -> None:
    """A found block that nobody uses leaves the free ones when it is used again."""
    manager.free(compute(manager, make_state(12)))
    prefix = manager.find_prefix(make_state(32))
    assert len(prefix) == 3
    assert manager.has_room(make_state(32), prefix, num_reserved=0)
    assert not manager.has_room(make_state(32), prefix, num_reserved=1)
    manager.pool.allocate(1)
    assert not manager.has_room(make_state(32), prefix, num_reserved=0)


def test_after_a_reset_nothing_of_before_is_found_even_where_requests_go_on(manager: KVCacheManager, make_state: MakeState) -> None:
    request = compute(manager, make_state(12))
    manager.reset_prefix_cache([request])
    request.token_ids += [1] * 4
    manager.grow(request)
    request.num_computed_tokens = 16
    manager.register_computed(request)
    assert hit(manager, make_state(13)) == 0
    compute(manager, make_state(12))
    assert hit(manager, make_state(13)) == 12
