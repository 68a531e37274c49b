"""One piece of memory that two processes share."""

import errno
import gc
import os
import resource
import threading
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from functools import partial
from pathlib import Path

import numpy as np
import pytest

from inset.cache.segment import SegmentReader, SegmentWriter, object_bytes
from inset.config import MIB
from inset.errors import ConfigError

HASH = b"h" * 32
TENSORS = {"a": np.arange(5, dtype="<f4"), "b": np.zeros((0, 3), "u1"), "c": np.array(3, ">i8")}


def test_object_is_read_where_it_was_written_and_refused_under_another_name_or_generation() -> None:
    writer = SegmentWriter(4096)
    reader = SegmentReader(writer.fd, 4096)
    layout = writer.write(128, HASH, 7, TENSORS)
    tensors = reader.read(128, HASH, 7, layout)
    assert tensors is not None
    for name, array in TENSORS.items():
        assert (tensors[name].dtype, tensors[name].shape, tensors[name].tobytes()) == (array.dtype, array.shape, array.tobytes())
    assert reader.read(128, HASH, 8, layout) is None
    assert reader.read(128, b"x" * 32, 7, layout) is None
    assert reader.read(192, HASH, 7, layout) is None
    writer.clear(128)
    assert reader.read(128, HASH, 7, layout) is None
    writer.close()
    writer.close()


def test_size_of_an_object_counts_its_header_and_the_gaps() -> None:
    assert object_bytes(TENSORS) == 64 + 64 + 0 + 64


def test_views_share_the_memory_are_read_only_and_outlive_writer_and_reader() -> None:
    writer = SegmentWriter(4096)
    reader = SegmentReader(writer.fd, 4096)
    layout = writer.write(0, HASH, 1, TENSORS)
    first, second = reader.read(0, HASH, 1, layout), reader.read(0, HASH, 1, layout)
    assert first is not None
    assert second is not None
    assert np.shares_memory(first["a"], second["a"])
    with pytest.raises(ValueError, match="read-only"):
        first["a"][0] = 1
    writer.close()
    del reader, second
    gc.collect()
    assert first["a"].tobytes() == TENSORS["a"].tobytes()


def test_segment_has_no_name() -> None:
    writer = SegmentWriter(1 << 20)
    assert os.readlink(f"/proc/self/fd/{writer.fd}").startswith("/memfd:")
    assert os.fstat(writer.fd).st_nlink == 0
    writer.close()


def test_large_segment_takes_no_memory_before_it_is_written() -> None:
    writer = SegmentWriter(1 << 40)
    SegmentReader(writer.fd, 1 << 40)
    assert os.fstat(writer.fd).st_blocks * 512 <= 128 << 20
    writer.close()


def join_populating() -> None:
    for thread in threading.enumerate():
        if thread.name == "inset-shm-populate":
            thread.join(20)


def test_memory_is_populated_ahead_of_use_and_no_further() -> None:
    def populated_bytes() -> int:
        join_populating()
        return os.fstat(writer.fd).st_blocks * 512

    writer = SegmentWriter(512 * MIB)
    assert populated_bytes() == 64 * MIB
    writer.write(48 * MIB, HASH, 1, TENSORS)
    assert 64 * MIB < populated_bytes() <= 130 * MIB
    writer.close()


@contextmanager
def limited(kind: int, most: int) -> Iterator[None]:
    limits = resource.getrlimit(kind)
    resource.setrlimit(kind, (most, limits[1]))
    try:
        yield
    finally:
        resource.setrlimit(kind, limits)


@contextmanager
def without_threads() -> Iterator[None]:
    before = threading.stack_size(1 << 47)  # no address space for it
    try:
        yield
    finally:
        threading.stack_size(before)


def descriptors() -> set[str]:
    return set(os.listdir("/proc/self/fd"))


@pytest.mark.parametrize("nothing_left", [partial(limited, resource.RLIMIT_NOFILE, 0), without_threads], ids=["descriptors", "threads"])
def test_object_is_stored_also_where_nothing_can_be_populated(nothing_left: Callable[[], AbstractContextManager[None]]) -> None:
    writer = SegmentWriter(512 * MIB)
    reader = SegmentReader(writer.fd, 512 * MIB)
    join_populating()
    before = descriptors()
    with nothing_left():
        layout = writer.write(48 * MIB, HASH, 1, TENSORS)
    assert reader.read(48 * MIB, HASH, 1, layout) is not None
    assert descriptors() == before
    writer.write(49 * MIB, HASH, 2, TENSORS)
    join_populating()
    assert os.fstat(writer.fd).st_blocks * 512 > 100 * MIB, "populated as soon as it could be"
    writer.close()


def test_segment_that_cannot_be_had_leaves_no_descriptor() -> None:
    before = descriptors()
    with limited(resource.RLIMIT_FSIZE, 4096), pytest.raises(ConfigError):
        SegmentWriter(1 << 20)
    assert descriptors() == before


def test_file_instead_of_a_memfd_leaves_nothing_in_its_folder(tmp_path: Path) -> None:
    writer = SegmentWriter(4096, folder=tmp_path)
    layout = writer.write(0, HASH, 1, TENSORS)
    assert list(tmp_path.iterdir()) == []
    assert os.fstat(writer.fd).st_mode & 0o077 == 0
    assert SegmentReader(writer.fd, 4096).read(0, HASH, 1, layout) is not None
    writer.close()


def test_folder_without_room_is_refused_at_start_with_the_options_that_help(tmp_path: Path) -> None:
    room = os.statvfs(tmp_path)
    with pytest.raises(ConfigError, match=r"--mm-processor-cache-gb smaller, or use --mm-processor-cache-type lru"):
        SegmentWriter(room.f_bavail * room.f_frsize + (1 << 30), folder=tmp_path)


def test_memory_that_cannot_be_had_is_an_error_and_no_signal() -> None:
    writer = SegmentWriter(1 << 20)
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (4096, limits[1]))
    try:
        with pytest.raises(OSError) as caught:
            writer.write(8192, HASH, 1, TENSORS)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    assert caught.value.errno == errno.EFBIG
    writer.close()
