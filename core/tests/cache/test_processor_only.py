"""The `processor_only` type: conformance, and what is its own."""

import pytest

from inset.cache.processor_only import ProcessorOnlyCacheEngine, ProcessorOnlyCacheFront
from inset.cache.values import CommittedItem, ItemToCommit, MultiModalCacheMissError
from inset.testing.conformance.cache_pair import ITEM_BYTES, CachePair, hash_of, make_item
from inset.testing.conformance.processor_cache import ProcessorCacheConformance
from inset.testing.sameness import assert_same_tensors


class TestProcessorOnlyConformance(ProcessorCacheConformance):
    front_class = ProcessorOnlyCacheFront
    engine_class = ProcessorOnlyCacheEngine


def test_tensors_are_sent_each_time_and_no_message_is() -> None:
    pair = CachePair(ProcessorOnlyCacheFront, ProcessorOnlyCacheEngine, capacity_bytes=4 * ITEM_BYTES, process=None)
    for request_id in ("1", "2"):
        (item,) = pair.commit(request_id, ["a"])
        assert item.tensors is not None
        assert pair.front.take_messages() == ()
    assert pair.num_processed == 1


def test_several_front_halves_share_one_engine_half() -> None:
    pairs = [CachePair(ProcessorOnlyCacheFront, ProcessorOnlyCacheEngine, capacity_bytes=4 * ITEM_BYTES, process=None) for _ in "12"]
    pairs[1].engine = pairs[0].engine
    for number in range(4):
        pairs[number % 2].serve(str(number), ["a", "b"])
    for number in range(4):
        pairs[number % 2].release(str(number))
    assert [pair.num_processed for pair in pairs] == [2, 2]
    for pair in pairs:
        pair.assert_idle()


def test_item_dropped_while_pinned_is_still_whole() -> None:
    pair = CachePair(ProcessorOnlyCacheFront, ProcessorOnlyCacheEngine, capacity_bytes=4 * ITEM_BYTES, process=None)
    pair.serve("1", ["a"])
    with pair.front.begin() as transaction:
        transaction.look_up(hash_of("a"))
        pair.front.drop([(hash_of("a"), 0)])
        (tensors,) = pair.resolve("2", transaction.commit("2", [ItemToCommit(hash_of("a"), None)]))
    assert_same_tensors(tensors, make_item("a").tensors)


def test_item_without_tensors_is_reported_missing() -> None:
    engine = ProcessorOnlyCacheEngine(capacity_bytes=0)
    with pytest.raises(MultiModalCacheMissError):
        engine.resolve("1", [CommittedItem(hash_of("a"), None)])
