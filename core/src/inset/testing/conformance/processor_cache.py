"""What every processor cache type must do, in one process and in two. Inherit `ProcessorCacheConformance`, name the two halves.

Each test carries its number on the page ``docs/how-to/write-a-cache-type.md``.
"""

from __future__ import annotations

import asyncio
import random
import threading
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import ClassVar

import numpy as np
import pytest

from inset.cache.base import ProcessorCacheEngine, ProcessorCacheFront
from inset.cache.values import CommittedItem, ItemToCommit, ProcessedItem, item_bytes
from inset.inputs import ItemPlan
from inset.testing.conformance.cache_pair import ITEM_BYTES, LIMIT_SECONDS, CachePair, hash_of, make_item
from inset.testing.conformance.engine_process import EngineProcess
from inset.testing.sameness import assert_same_tensors

__all__ = ["CachePair", "ProcessorCacheConformance", "make_item"]


class ProcessorCacheConformance:
    """Inherit, and set the two classes, both importable by name in another process.

    Attributes:
        front_class: The front half.
        engine_class: The engine half.
        room_for_four_bytes: A capacity that holds four items of 1,024 bytes with the type's own overhead, and not five.
    """

    front_class: ClassVar[type[ProcessorCacheFront]]
    engine_class: ClassVar[type[ProcessorCacheEngine]]
    room_for_four_bytes: ClassVar[int] = 4 * ITEM_BYTES
    engine_process: ClassVar[EngineProcess]

    @classmethod
    def setup_class(cls) -> None:
        """Starts a second process, shared by the tests of a class."""
        cls.engine_process = EngineProcess()

    @classmethod
    def teardown_class(cls) -> None:
        """Ends it."""
        cls.engine_process.close()

    @pytest.fixture(params=["one process", "two processes"])
    def pair(self, request: pytest.FixtureRequest) -> Iterator[CachePair]:
        """Both halves with room for four items."""
        process = self.engine_process if request.param == "two processes" else None
        pair = CachePair(self.front_class, self.engine_class, capacity_bytes=self.room_for_four_bytes, process=process)
        yield pair
        pair.close()

    @pytest.mark.parametrize(
        "array",
        [
            *(np.array([[0, 1], [2, 3]], dtype) for dtype in ("u1", "i1", "<i2", "<i4", "<i8", "<u4", "<f2", "<f4", "<f8", "?", "<c8")),
            np.array([np.nan, -0.0, np.inf, 1e-45], "<f4"),
            np.zeros((3, 0, 5), "<f4"),
            np.array(7, "<i8"),
            np.arange(24, dtype="<i4").reshape(2, 3, 4).transpose(2, 0, 1),
            np.arange(10, dtype="u1")[::3],
        ],
        ids=lambda array: f"{array.dtype}{array.shape}",
    )
    def test_01_tensors_arrive_bit_for_bit(self, pair: CachePair, array: np.ndarray) -> None:
        frozen = array.copy()
        frozen.flags.writeable = False
        item = ProcessedItem(ItemPlan(num_tokens=2, num_embeds=2), {"x": array, "read_only": frozen, "grid": np.array([1, 2, 3])})
        for request_id in ("first", "again"):
            with pair.front.begin() as transaction:
                committed = transaction.commit(request_id, [pair.process(transaction, item, hash_of("a"))])
            (tensors,) = pair.resolve(request_id, committed)
            assert_same_tensors(tensors, item.tensors)
            if isinstance(pair.engine, self.engine_class):
                assert not any(view.flags.writeable for view in tensors.values())
            pair.release(request_id)
        assert pair.num_processed == 1

    def test_02_second_request_hits_and_processes_nothing(self, pair: CachePair) -> None:
        pair.serve("1", ["a"])
        pair.serve("2", ["a"])
        assert pair.num_processed == 1
        with pair.front.begin() as transaction:
            assert transaction.look_up(hash_of("a")) == make_item("a").plan
            assert transaction.look_up(hash_of("b")) is None

    @pytest.mark.parametrize("seed", range(3))
    def test_03_right_tensors_in_any_interleaving_with_evictions(self, pair: CachePair, seed: int) -> None:
        """Requests of one to three items out of nine names, some released late, some in another order than they came."""
        source, held = random.Random(seed), list[str]()
        for number in range(60):
            pair.serve(str(number), source.choices("abcdefghi", k=source.randint(1, 3)), source.choice([400, 700, ITEM_BYTES]))
            held.append(str(number))
            while len(held) > source.randint(0, 3):
                pair.release(held.pop(source.randrange(len(held))))
            assert pair.front.stats.num_bytes <= pair.capacity_bytes
            assert pair.engine.stats.num_bytes <= pair.capacity_bytes
        for request_id in held:
            pair.release(request_id)
        assert pair.num_misses_in_engine == 0
        pair.assert_idle()

    def test_04_pinned_item_is_never_evicted(self, pair: CachePair) -> None:
        pair.serve("1", ["a"])
        pair.release("1")
        with pair.front.begin() as transaction:
            assert transaction.look_up(hash_of("a")) is not None
            for number, name in enumerate("bcdefgh"):
                pair.serve(name, [name])
                pair.release(name)
                assert pair.num_processed == number + 2
            committed = transaction.commit("2", [ItemToCommit(hash_of("a"), None)])
        (tensors,) = pair.resolve("2", committed)
        assert_same_tensors(tensors, make_item("a").tensors)
        assert pair.num_misses_in_engine == 0

    def test_05_item_larger_than_the_cache_travels_inline(self, pair: CachePair) -> None:
        pair.serve("1", ["a"])
        too_large = pair.capacity_bytes + 1
        pair.serve("2", ["large"], too_large)
        assert pair.commit("3", ["large"], too_large)[0].tensors is not None
        assert pair.front.stats.num_evictions == 0
        pair.serve("4", ["a"])
        assert pair.num_processed == 3

    def test_06_request_larger_than_the_cache_is_served(self, pair: CachePair) -> None:
        for request_id in ("1", "2"):
            pair.serve(request_id, "abcdefghi")
            pair.release(request_id)
        assert pair.front.stats.num_bytes <= pair.capacity_bytes
        pair.assert_idle()

    def test_07_item_twice_in_one_request_is_processed_and_stored_once(self, pair: CachePair) -> None:
        with pair.front.begin() as transaction:
            item = make_item("a")
            first = pair.process(transaction, item, hash_of("a"))
            assert transaction.join_flight(hash_of("a")) is transaction.join_flight(hash_of("a"))
            committed = transaction.commit("1", [first, ItemToCommit(hash_of("a"), item), first])
        for tensors in pair.resolve("1", committed):
            assert_same_tensors(tensors, item.tensors)
        assert pair.front.stats.num_inserts == 1

    def test_08_abort_between_commit_and_receipt_causes_no_later_miss(self, pair: CachePair) -> None:
        pair.commit("aborted", ["a", "b"])
        pair.release("aborted")
        pair.serve("1", ["a", "b"])
        assert (pair.num_processed, pair.num_misses_in_engine) == (2, 0)
        pair.release("1")
        pair.assert_idle()

    def test_09_requests_may_overtake_one_another(self, pair: CachePair) -> None:
        """Each commit evicts what an earlier one refers to; all messages are applied before the first request arrives."""
        names = [["a", "b"], ["b", "c"], ["d", "e"], ["f", "g"], ["a", "h"], ["b", "i"]]
        committed = [pair.commit(str(number), request) for number, request in enumerate(names)]
        pair.deliver()
        for number in (5, 2, 0, 4, 1, 3):
            for name, tensors in zip(names[number], pair.resolve(str(number), committed[number]), strict=True):
                assert_same_tensors(tensors, make_item(name).tensors)
            pair.release(str(number))
        pair.assert_idle()

    def test_10_reset_while_requests_run_harms_none_of_them(self, pair: CachePair) -> None:
        pair.serve("held", ["a"])
        with pair.front.begin() as transaction:
            pair.serve("between", ["b"])
            assert transaction.look_up(hash_of("b")) is not None
            committed = pair.commit("underway", ["a", "c"])
            pair.front.reset()
            (tensors,) = pair.resolve("2", transaction.commit("2", [ItemToCommit(hash_of("b"), None)]))
            assert_same_tensors(tensors, make_item("b").tensors)
        for name, tensors in zip("ac", pair.resolve("underway", committed), strict=True):
            assert_same_tensors(tensors, make_item(name).tensors)
        pair.engine.reset()
        pair.serve("after", ["a", "b", "c", "d"])
        for request_id in ("held", "between", "underway", "2", "after"):
            pair.release(request_id)
        pair.assert_idle()

    def test_11_restarted_engine_half_is_filled_again_by_itself(self, pair: CachePair) -> None:
        pair.serve("1", ["a", "b"])
        pair.start_engine()
        pair.serve("2", ["b", "c"])
        pair.serve("3", ["a"])
        assert pair.num_misses_in_engine <= 1, "one miss tells of all that is lost"
        pair.front.engine_restarted()
        pair.start_engine()
        assert pair.front.stats.num_leases == 0
        pair.serve("4", ["a", "b", "c"])
        assert pair.num_misses_in_engine <= 1
        pair.release("4")
        pair.assert_idle()

    def test_12_restarted_front_half_starts_afresh(self, pair: CachePair) -> None:
        pair.serve("1", ["a", "b"])
        pair.start_front()
        for number in range(2, 6):
            pair.serve(str(number), ["a", "bc"[number % 2]])
        assert pair.num_misses_in_engine == 0
        for number in range(1, 6):
            pair.release(str(number))
        pair.assert_idle()

    def test_13_statistics_are_exact(self, pair: CachePair) -> None:
        pair.serve("1", ["a", "b", "a"])
        pair.serve("2", ["b", "c"])
        for request_id in ("1", "2"):
            pair.release(request_id)
        stats = pair.front.stats
        assert (stats.num_hits, stats.num_misses, stats.num_inserts, stats.num_evictions, stats.num_items) == (1, 3, 3, 0, 3)
        assert 3 * ITEM_BYTES <= stats.num_bytes <= stats.capacity_bytes == pair.capacity_bytes
        pair.serve("3", ["d", "e"])
        pair.release("3")
        assert pair.front.stats.num_evictions == 1
        assert pair.front.stats.num_items == 4
        pair.assert_idle()

    def test_14_hold_ends_with_the_release_alone(self, pair: CachePair) -> None:
        pair.serve("1", ["a"])
        for number, name in enumerate("bcdefgh"):
            pair.serve(f"other {number}", [name])
            pair.release(f"other {number}")
        pair.front.reset()
        committed = pair.commit("2", ["a"])
        assert_same_tensors(pair.resolve("2", committed)[0], make_item("a").tensors)
        assert pair.engine.stats.num_leases == 2
        pair.release("1")
        pair.release("1")
        assert pair.engine.stats.num_leases == 1
        pair.release("2")
        pair.assert_idle()

    def test_15_sixteen_requests_for_one_new_item_process_it_once(self, pair: CachePair) -> None:
        gate = threading.Barrier(16)

        def run(number: int) -> Sequence[CommittedItem]:
            gate.wait(LIMIT_SECONDS)
            return pair.commit(str(number), ["a", "b"])

        with ThreadPoolExecutor(16) as pool:
            requests = list(pool.map(run, range(16)))
        for number, committed in enumerate(requests):
            for name, tensors in zip("ab", pair.resolve(str(number), committed), strict=True):
                assert_same_tensors(tensors, make_item(name).tensors)
            pair.release(str(number))
        assert pair.num_processed == 2
        pair.assert_idle()

    def test_16_next_request_takes_over_when_the_leader_leaves(self, pair: CachePair) -> None:
        leader, follower = pair.front.begin(), pair.front.begin()
        flight, waiting = leader.join_flight(hash_of("a")), follower.join_flight(hash_of("a"))
        assert flight is not None
        assert waiting is not None
        assert (flight.is_leader, waiting.is_leader) == (True, False)
        leader.close()
        assert asyncio.run(waiting.wait_async(LIMIT_SECONDS)) is None
        waiting.complete(make_item("a"))
        (tensors,) = pair.resolve("1", follower.commit("1", [ItemToCommit(hash_of("a"), make_item("a"))]))
        assert_same_tensors(tensors, make_item("a").tensors)

    def test_17_item_stored_since_the_look_up_is_not_processed_again(self, pair: CachePair) -> None:
        with pair.front.begin() as transaction:
            assert transaction.look_up(hash_of("a")) is None
            pair.serve("1", ["a"])
            assert transaction.join_flight(hash_of("a")) is None
            assert transaction.look_up(hash_of("a")) is not None
            (tensors,) = pair.resolve("2", transaction.commit("2", [ItemToCommit(hash_of("a"), None)]))
        assert_same_tensors(tensors, make_item("a").tensors)

    def test_18_hit_does_not_wait_behind_a_miss(self, pair: CachePair) -> None:
        pair.serve("1", ["a"])
        with pair.front.begin() as slow:
            flight = slow.join_flight(hash_of("b"))
            assert flight is not None
            assert flight.is_leader
            with ThreadPoolExecutor(1) as pool:
                pool.submit(pair.serve, "2", ["a"]).result(LIMIT_SECONDS)
        assert pair.num_processed == 1

    def test_19_closed_transaction_holds_nothing(self, pair: CachePair) -> None:
        pair.serve("1", ["a"])
        pair.release("1")
        transaction = pair.front.begin()
        transaction.look_up(hash_of("a"))
        transaction.join_flight(hash_of("b"))
        transaction.close()
        transaction.close()
        with pair.front.begin() as other:
            flight = other.join_flight(hash_of("b"))
            assert flight is not None
            assert flight.is_leader
        pair.assert_idle()

    def test_20_front_half_that_knows_the_tensors_gives_the_right_ones(self, pair: CachePair) -> None:
        pair.serve("1", ["a"])
        with pair.front.begin() as transaction:
            assert transaction.get_tensors(hash_of("a")) is None, "not pinned yet"
            transaction.look_up(hash_of("a"))
            tensors = transaction.get_tensors(hash_of("a"))
            assert tensors is None or (item_bytes(tensors) == ITEM_BYTES)
            if tensors is not None:
                assert_same_tensors(tensors, make_item("a").tensors)

    def test_21_many_threads_get_the_right_tensors(self, pair: CachePair) -> None:
        """Eight threads process and commit, or give up what they lead; the engine half gets one request at a time, in any order."""
        sending = threading.Lock()

        def run(seed: int) -> None:
            source = random.Random(seed)
            for number in range(15):
                request_id, names = f"{seed}-{number}", source.choices("abcdefgh", k=source.randint(1, 3))
                with pair.front.begin() as given_up:
                    given_up.look_up(hash_of(names[0]))
                    given_up.join_flight(hash_of(names[-1]))
                committed = pair.commit(request_id, names)
                with sending:
                    for name, tensors in zip(names, pair.resolve(request_id, committed), strict=True):
                        assert_same_tensors(tensors, make_item(name).tensors)
                with sending:
                    pair.release(request_id)

        with ThreadPoolExecutor(8) as pool:
            list(pool.map(run, range(8), timeout=LIMIT_SECONDS))
        pair.assert_idle()
