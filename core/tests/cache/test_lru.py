"""The `lru` type: conformance, and what is its own."""

import copy

import numpy as np
import pytest

from inset.cache.lru import LruCacheEngine, LruCacheFront
from inset.cache.values import ItemToCommit, MultiModalCacheMissError
from inset.config import GIB, CacheConfig
from inset.errors import InvariantError
from inset.testing.conformance.cache_pair import ITEM_BYTES, CachePair, hash_of, make_item
from inset.testing.conformance.processor_cache import ProcessorCacheConformance
from inset.testing.sameness import assert_same_tensors


class TestLruConformance(ProcessorCacheConformance):
    front_class = LruCacheFront
    engine_class = LruCacheEngine


@pytest.fixture
def pair() -> CachePair:
    return CachePair(LruCacheFront, LruCacheEngine, capacity_bytes=4 * ITEM_BYTES, process=None)


def test_size_comes_from_the_options() -> None:
    front = LruCacheFront.from_config(CacheConfig(mm_processor_cache_gb=0.5))
    engine = LruCacheEngine.from_config(CacheConfig(mm_processor_cache_gb=0.5))
    assert front.stats.capacity_bytes == engine.stats.capacity_bytes == GIB // 2


def test_arrays_are_shared_and_not_copied_in_one_process(pair: CachePair) -> None:
    item = make_item("a")
    with pair.front.begin() as transaction:
        committed = transaction.commit("1", [pair.process(transaction, item, hash_of("a"))])
    (tensors,) = pair.resolve("1", committed)
    assert np.shares_memory(tensors["pixel_values"], item.tensors["pixel_values"])


def test_only_the_hash_travels_on_a_hit(pair: CachePair) -> None:
    pair.serve("1", ["a"])
    (item,) = pair.commit("2", ["a"])
    assert item.tensors is None
    ((_, _, request_id, references, inserts, evictions),) = pair.front.take_messages()
    assert (request_id, references, inserts, evictions) == ("2", (hash_of("a"),), (), ())


def test_least_recently_used_item_goes_first(pair: CachePair) -> None:
    for name in "abcd":
        pair.serve(name, [name])
    pair.serve("again", ["a"])
    pair.serve("new", ["e"])
    *_, evictions = (pair.commit("last", ["f"]), pair.front.take_messages()[0])[1]
    assert evictions == (hash_of("c"),)


def test_zero_bytes_are_not_worth_a_place(pair: CachePair) -> None:
    pair.serve("1", ["empty"], 0)
    assert pair.front.stats.num_items == 0


def test_what_exceeds_the_outbox_travels_inline() -> None:
    front = LruCacheFront(capacity_bytes=100 * ITEM_BYTES, max_outbox_bytes=2 * ITEM_BYTES)
    pair = CachePair(LruCacheFront, LruCacheEngine, capacity_bytes=100 * ITEM_BYTES, process=None)
    pair.front = front
    committed = pair.commit("1", ["a", "b", "c"])
    assert [item.tensors is None for item in committed] == [True, True, False]
    for name, tensors in zip("abc", pair.resolve("1", committed), strict=True):
        assert_same_tensors(tensors, make_item(name).tensors)
    pair.serve("2", ["d", "e"])
    assert front.stats.num_items == 4


def test_outbox_that_nobody_takes_is_given_up(pair: CachePair) -> None:
    pair.front = LruCacheFront(capacity_bytes=4 * ITEM_BYTES, max_outbox_messages=3)
    for number in range(10):
        pair.commit(str(number), ["a"])
        assert len(pair.front.take_messages() if number == 9 else []) <= 3
    pair.serve("after", ["a", "b"])
    pair.release("after")
    pair.assert_idle()


def test_lost_message_clears_both_halves_at_the_cost_of_one_miss(pair: CachePair) -> None:
    pair.serve("1", ["a", "b"])
    pair.commit("lost", ["c"])
    assert len(pair.front.take_messages()) == 1
    pair.serve("2", ["a"])
    pair.serve("3", ["b", "c"])
    assert pair.num_misses_in_engine == 1
    assert pair.engine.stats.num_bytes == pair.front.stats.num_bytes == 3 * ITEM_BYTES


def test_report_of_an_older_insert_drops_nothing(pair: CachePair) -> None:
    pair.serve("1", ["a"])
    (item,) = pair.commit("2", ["a"])
    sequence = item.handle
    pair.front.drop([(hash_of("a"), sequence + 1), (hash_of("z"), sequence)])
    assert pair.front.stats.num_items == 1
    pair.front.drop([(hash_of("a"), sequence)])
    assert pair.front.stats.num_items == 0


def test_item_dropped_while_pinned_is_looked_up_anew_or_reported_missing(pair: CachePair) -> None:
    pair.serve("1", ["a"])
    (item,) = pair.commit("2", ["a"])
    pair.release("1")
    pair.release("2")
    report = [(hash_of("a"), item.handle)]
    with pair.front.begin() as first, pair.front.begin() as second:
        assert first.look_up(hash_of("a")) == second.look_up(hash_of("a")) is not None
        pair.front.drop(report)
        assert first.look_up(hash_of("a")) is None
        committed = second.commit("3", [ItemToCommit(hash_of("a"), None)])
    with pytest.raises(MultiModalCacheMissError) as caught:
        pair.resolve("3", committed)
    assert list(caught.value.missing) == report
    assert pair.front.stats.num_leases == 0


def test_item_that_was_neither_found_nor_processed_is_our_own_mistake(pair: CachePair) -> None:
    transaction = pair.front.begin()
    with pytest.raises(InvariantError):
        transaction.commit("1", [ItemToCommit(hash_of("a"), None)])
    with pytest.raises(InvariantError):
        transaction.look_up(hash_of("a"))


def test_miss_error_survives_copying() -> None:
    error = copy.copy(MultiModalCacheMissError([(hash_of("a"), 3)], lost_before=2))
    assert (error.missing, error.lost_before) == (((hash_of("a"), 3),), 2)
