"""Random requests against a tiny cache: several at a time, aborted anywhere, with many items and with too large ones.

The front half decides and pins, so the engine half misses nothing and nothing that was found has to be processed again.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from inset.cache.base import CacheTransaction, ProcessorCacheEngine, ProcessorCacheFront
from inset.cache.lru import LruCacheEngine, LruCacheFront
from inset.cache.processor_only import ProcessorOnlyCacheEngine, ProcessorOnlyCacheFront
from inset.cache.shm import ShmCacheEngine, ShmCacheFront
from inset.cache.values import CommittedItem
from inset.testing.conformance.cache_pair import CachePair, hash_of, make_item
from inset.testing.sameness import assert_same_tensors

CAPACITY_BYTES = 4096
SIZES = (300, 700, 1024, 2500, 5000)

Content = tuple[str, int]


@dataclass
class SimulatedRequest:
    """One request on its way, advanced a stage at a time."""

    request_id: str
    contents: list[Content]
    transaction: CacheTransaction
    found: set[Content] = field(default_factory=set)
    committed: list[CommittedItem] = field(default_factory=list)

    def stages(self, pair: CachePair) -> Iterator[None]:
        """Phase 1, phase 2 with the commit, arrival in the engine, end. An abort just stops in between."""
        self.found = {content for content in self.contents if self.transaction.look_up(hash_of(*content)) is not None}
        yield
        items = []
        for content in self.contents:
            before = pair.num_processed
            items.append(pair.process(self.transaction, make_item(*content), hash_of(*content)))
            assert not (content in self.found and pair.num_processed > before), "what had been found was processed again"
        self.committed = list(self.transaction.commit(self.request_id, items))
        yield
        for content, tensors in zip(self.contents, pair.resolve(self.request_id, self.committed), strict=True):
            assert_same_tensors(tensors, make_item(*content).tensors)
        yield


requests = st.lists(st.tuples(st.sampled_from("abcdef"), st.sampled_from(SIZES)), min_size=1, max_size=4)
# Each step opens a request, advances one of those that are open, or ends one of them wherever it is.
steps = st.lists(st.one_of(requests, st.tuples(st.sampled_from(["advance", "end"]), st.integers(0, 7))), max_size=80)


@pytest.mark.parametrize(
    ("front_class", "engine_class"),
    [(LruCacheFront, LruCacheEngine), (ProcessorOnlyCacheFront, ProcessorOnlyCacheEngine), (ShmCacheFront, ShmCacheEngine)],
    ids=["lru", "processor_only", "shm"],
)
@given(plan=steps)
@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.too_slow])
def test_no_miss_and_no_needless_processing_whatever_is_aborted(
    front_class: type[ProcessorCacheFront], engine_class: type[ProcessorCacheEngine], plan: list[list[Content] | tuple[str, int]]
) -> None:
    pair = CachePair(front_class, engine_class, capacity_bytes=CAPACITY_BYTES, process=None)
    running: list[tuple[SimulatedRequest, Iterator[None]]] = []

    def end(index: int) -> None:
        request, _ = running.pop(index)
        request.transaction.close()
        if request.committed:
            pair.release(request.request_id)

    for number, step in enumerate(plan):
        if isinstance(step, list):
            request = SimulatedRequest(str(number), step, pair.front.begin())
            running.append((request, request.stages(pair)))
        elif running:
            index = step[1] % len(running)
            if step[0] == "end" or next(running[index][1], "done") == "done":
                end(index)
        assert pair.front.stats.num_bytes <= CAPACITY_BYTES
        assert pair.engine.stats.num_bytes <= CAPACITY_BYTES
    while running:
        end(0)
    pair.assert_idle()
    pair.close()
