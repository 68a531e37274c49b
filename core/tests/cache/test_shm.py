"""The `shm` type: conformance, and what is its own."""

import errno
import os
import resource
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest

from inset.cache.handover import receive_export
from inset.cache.segment import ALIGNMENT
from inset.cache.shm import ShmCacheEngine, ShmCacheFront
from inset.cache.values import CommittedItem, ItemToCommit, MultiModalCacheMissError, ProcessedItem
from inset.config import GIB, MIB, CacheConfig
from inset.testing.conformance.cache_pair import ITEM_BYTES, CachePair, hash_of, make_item
from inset.testing.conformance.engine_process import EngineProcess
from inset.testing.conformance.processor_cache import ProcessorCacheConformance
from inset.testing.sameness import assert_same_tensors

ROOM_FOR_FOUR_BYTES = 4 * (ITEM_BYTES + ALIGNMENT)
LIMIT_SECONDS = 20.0


class TestShmConformance(ProcessorCacheConformance):
    front_class = ShmCacheFront
    engine_class = ShmCacheEngine
    room_for_four_bytes = ROOM_FOR_FOUR_BYTES


@pytest.fixture
def pair() -> Iterator[CachePair]:
    pair = CachePair(ShmCacheFront, ShmCacheEngine, capacity_bytes=ROOM_FOR_FOUR_BYTES, process=None)
    yield pair
    pair.close()


def test_sizes_come_from_the_options() -> None:
    front = ShmCacheFront.from_config(CacheConfig(mm_processor_cache_gb=0.25, mm_shm_cache_max_object_size_mb=1))
    pair = CachePair(ShmCacheFront, ShmCacheEngine, capacity_bytes=GIB // 4, process=None)
    pair.front = front
    assert front.stats.capacity_bytes == GIB // 4
    assert pair.commit("1", ["large"], MIB + 1)[0].tensors is not None
    assert pair.commit("2", ["small"], MIB)[0].tensors is None
    front.close()


def test_handles_travel_and_tensors_do_not(pair: CachePair) -> None:
    for request_id in ("1", "2"):
        (item,) = pair.commit(request_id, ["a"])
        assert item.tensors is None
        assert len(msgspec.msgpack.encode(item.handle)) < 128
        assert pair.front.take_messages() == ()


def test_requests_view_the_same_memory(pair: CachePair) -> None:
    (first,), (second,) = (pair.resolve(request_id, pair.commit(request_id, ["a"])) for request_id in ("1", "2"))
    assert np.shares_memory(first["pixel_values"], second["pixel_values"])


def test_oldest_item_goes_first_however_often_it_is_used(pair: CachePair) -> None:
    for request_id, name in enumerate("abcdaaae"):
        pair.serve(str(request_id), [name])
        pair.release(str(request_id))
    with pair.front.begin() as transaction:
        assert transaction.look_up(hash_of("a")) is None
        assert transaction.look_up(hash_of("b")) is not None


def test_old_item_leased_for_long_blocks_nothing(pair: CachePair) -> None:
    pair.serve("long", ["a"])
    for number, name in enumerate("bcdefghijk" * 3):
        pair.serve(str(number), [name])
        pair.release(str(number))
        assert pair.front.stats.num_items == min(number + 2, 4)
    assert pair.front.stats.num_leases == 1
    pair.serve("again", ["a"])
    assert pair.num_processed == 31


def test_lease_does_not_end_with_the_transaction_but_with_the_release(pair: CachePair) -> None:
    pair.commit("1", ["a", "a"])
    pair.commit("2", ["a"])
    pair.front.reset()
    assert (pair.front.stats.num_leases, pair.front.stats.num_items) == (1, 1)
    pair.release("1")
    assert pair.front.stats.num_leases == 1
    pair.release("2")
    pair.assert_idle()


def test_leased_item_that_was_dropped_keeps_its_memory_until_the_release(pair: CachePair) -> None:
    committed = pair.commit("1", ["a"])
    (tensors,) = pair.resolve("1", committed)
    pair.front.drop([(hash_of("a"), committed[0].handle[2])])
    assert pair.front.stats.num_items == 0
    assert pair.front.stats.num_bytes == ITEM_BYTES + ALIGNMENT
    pair.serve("2", list("bcdef"))
    assert_same_tensors(tensors, make_item("a").tensors)
    pair.release("1")
    pair.release("2")
    pair.assert_idle()


def test_handle_of_an_older_generation_is_refused(pair: CachePair) -> None:
    (old,) = pair.commit("1", ["a"])
    pair.release("1")
    pair.serve("2", list("bcde"))
    with pytest.raises(MultiModalCacheMissError) as caught:
        pair.engine.resolve("3", [old])
    assert caught.value.missing == ((hash_of("a"), old.handle[2]),)


def test_handle_of_another_segment_or_before_the_hand_over_is_refused(pair: CachePair) -> None:
    (old,) = pair.commit("1", ["a"])
    pair.start_front()
    pair.commit("2", ["a"])
    for engine in (pair.engine, ShmCacheEngine(capacity_bytes=0)):
        with pytest.raises(MultiModalCacheMissError):
            engine.resolve("3", [old])


def test_item_without_room_between_leases_travels_inline_and_evicts_nothing(pair: CachePair) -> None:
    pair.serve("1", list("abcd"))
    for name in "ac":
        pair.serve(f"hold {name}", [name])
    pair.release("1")
    pair.serve("2", ["wide"], 2 * ITEM_BYTES)
    assert pair.front.stats.num_evictions == 0
    assert pair.front.stats.num_items == 4


def test_memory_that_cannot_be_had_makes_the_item_travel_inline() -> None:
    pair = CachePair(ShmCacheFront, ShmCacheEngine, capacity_bytes=MIB, process=None)
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (8192, limits[1]))
    try:
        committed = pair.commit("1", ["a", "large"], 6000)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    assert [item.tensors is None for item in committed] == [True, False]
    for name, tensors in zip(["a", "large"], pair.resolve("1", committed), strict=True):
        assert_same_tensors(tensors, make_item(name, 6000).tensors)
    pair.release("1")
    pair.assert_idle()


class HeldTensors(dict[str, np.ndarray[Any, Any]]):
    """Tensors whose writing waits, and then finds no memory."""

    def __init__(self, tensors: Mapping[str, np.ndarray[Any, Any]]) -> None:
        super().__init__(tensors)
        self.is_written = threading.Event()
        self.may_end = threading.Event()

    def items(self) -> Any:
        self.is_written.set()
        assert self.may_end.wait(LIMIT_SECONDS)
        raise OSError(errno.ENOSPC, "no memory")


def test_hit_that_was_dropped_is_served_whatever_becomes_of_those_who_write_it_anew(pair: CachePair) -> None:
    pair.serve("1", ["a"])
    item, mm_hash = make_item("a"), hash_of("a")
    held = HeldTensors(item.tensors)
    with pair.front.begin() as hit, pair.front.begin() as writer, ThreadPoolExecutor(1) as threads:
        assert hit.look_up(mm_hash) is not None
        pair.front.drop([], lost_before=1 << 40)
        written = threads.submit(writer.commit, "writer", [ItemToCommit(mm_hash, ProcessedItem(item.plan, held))])
        assert held.is_written.wait(LIMIT_SECONDS)
        try:
            committed = hit.commit("2", [ItemToCommit(mm_hash, None)])
        finally:
            held.may_end.set()
        (inline,) = written.result(LIMIT_SECONDS)
        assert inline.tensors is held
    (tensors,) = pair.resolve("2", committed)
    assert_same_tensors(tensors, item.tensors)
    for request_id in ("1", "2", "writer"):
        pair.release(request_id)
    pair.assert_idle()
    assert pair.front.stats.num_bytes == 0


def test_file_in_a_folder_serves_as_well(tmp_path: Path) -> None:
    pair = CachePair(ShmCacheFront, ShmCacheEngine, capacity_bytes=ROOM_FOR_FOUR_BYTES, process=None)
    pair.front = ShmCacheFront(capacity_bytes=ROOM_FOR_FOUR_BYTES, folder=tmp_path)
    pair.start_engine()
    for number, name in enumerate("abcabcdefg"):
        pair.serve(str(number), [name])
        pair.release(str(number))
    pair.assert_idle()


def test_front_half_that_was_closed_serves_inline_and_harms_nobody(pair: CachePair) -> None:
    (tensors,) = pair.resolve("1", pair.commit("1", ["a"]))
    pair.front.close()
    assert pair.commit("2", ["b"])[0].tensors is not None
    assert_same_tensors(tensors, make_item("a").tensors)
    pair.release("1")
    assert pair.front.stats.num_leases == 0


def test_killed_reader_gives_its_leases_back_and_the_next_one_reads_on() -> None:
    process = EngineProcess()
    pair = CachePair(ShmCacheFront, ShmCacheEngine, capacity_bytes=ROOM_FOR_FOUR_BYTES, process=process)
    pair.serve("1", ["a", "b"])
    process.kill()
    (unsent,) = pair.commit("unsent", ["a"])
    assert pair.front.stats.num_leases == 2
    pair.front.engine_restarted()
    assert pair.front.stats.num_leases == 0
    after = EngineProcess()
    pair.move_engine(after)
    with pytest.raises(MultiModalCacheMissError):
        pair.resolve("unsent", [unsent])
    pair.serve("2", ["b", "c"])
    assert pair.num_processed == 3
    pair.release("2")
    pair.assert_idle()
    pair.close()
    after.close()


WRITER = """
import socket, sys, msgspec
from inset.cache.handover import send_export
from inset.cache.shm import ShmCacheEngine, ShmCacheFront
from inset.testing.conformance.cache_pair import CachePair
pair = CachePair(ShmCacheFront, ShmCacheEngine, capacity_bytes=1 << 20, process=None)
(item,) = pair.commit("1", ["a"])
connection = socket.socket(fileno=int(sys.argv[1]))
send_export(connection, pair.front.export())
connection.sendall(msgspec.msgpack.encode([item.mm_hash, None, item.handle]))
connection.recv(1)
"""


def is_mapped(inode: int) -> bool:
    """Whether this process still keeps the memory of a segment, which has no name."""
    lines = Path("/proc/self/maps").read_text("utf-8").splitlines()
    return any(line.split()[4] == str(inode) and "inset-processor-cache" in line for line in lines)


def test_killed_writer_leaves_nothing_and_its_reader_reads_on() -> None:
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_STREAM)
    with ours, theirs:
        ours.settimeout(LIMIT_SECONDS)
        writer = subprocess.Popen([sys.executable, "-c", WRITER, str(theirs.fileno())], pass_fds=[theirs.fileno()])
        engine = ShmCacheEngine(capacity_bytes=0)
        with receive_export(ours) as export:
            assert export is not None
            engine.attach(export)
            inode = os.fstat(export.fds[0]).st_ino
        item = CommittedItem(*msgspec.msgpack.decode(ours.recv(65536)))
        writer.kill()
        writer.wait(LIMIT_SECONDS)
        (tensors,) = engine.resolve("1", [item])
        assert_same_tensors(tensors, make_item("a").tensors)
        assert is_mapped(inode)
    del tensors
    engine.close()
    assert not is_mapped(inode)
