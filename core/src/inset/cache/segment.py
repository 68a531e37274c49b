"""One piece of memory that two processes share: a writer that owns it, readers that map it.

It has no name: on Linux a memfd, elsewhere a file that is unlinked as soon as it is open. So nothing is left after a crash, and neither its
size nor its fate depends on /dev/shm. An object is a header of 64 bytes and arrays that begin at multiples of 64::

    offset          + 8          + 40                  + 64           + arrays[0].offset   + arrays[1].offset
    | generation u64 | mm_hash 32 | zeros              | array 0      | gap | array 1 ...
"""

from __future__ import annotations

import mmap
import os
import secrets
import struct
import sys
import tempfile
import threading
from pathlib import Path
from typing import TYPE_CHECKING, Final, NamedTuple

import numpy as np

from inset.config import MIB
from inset.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from inset.inputs import ItemTensors

__all__ = ["ArrayLayout", "SegmentReader", "SegmentWriter", "object_bytes"]

ALIGNMENT: Final = 64
AHEAD_BYTES: Final = 64 * MIB
_HEADER: Final = struct.Struct("<Q32s")
# A private map of a sparse segment must not count as memory that is needed; the mmap module of Python 3.11 does not name the flag.
_MAP_NORESERVE: Final = 0x4000 if sys.platform == "linux" else 0


class ArrayLayout(NamedTuple):
    """Where one array of an object lies.

    Attributes:
        name: Its name among the item's tensors.
        dtype: As numpy writes it, byte order included, such as ``<f4``.
        shape: Its dimensions.
        offset: From the beginning of the object, in bytes.
    """

    name: str
    dtype: str
    shape: tuple[int, ...]
    offset: int


def _aligned(num_bytes: int) -> int:
    return -(-num_bytes // ALIGNMENT) * ALIGNMENT


def object_bytes(tensors: ItemTensors) -> int:
    """Returns the bytes that an item takes in a segment: header, arrays and the gaps between them."""
    return ALIGNMENT + sum(_aligned(array.nbytes) for array in tensors.values())


class SegmentWriter:
    """Owns a segment. Writing and clearing different spans from several threads at once is safe.

    What is written goes through the descriptor, not through a map: memory that cannot be had is then an error instead of a SIGBUS,
    fresh parts need no page faults, and the process does not grow by what it shares.

    Args:
        num_bytes: Size; sparse, so that only what has been written takes memory.
        folder: Where a file is made instead of a memfd.

    Raises:
        ConfigError: The segment cannot be had, or the folder has not that much room.
    """

    def __init__(self, num_bytes: int, *, folder: Path | None = None) -> None:
        self.num_bytes = num_bytes
        self.segment_id = secrets.token_bytes(16)
        self._lock = threading.Lock()
        self._num_populated_bytes = 0
        self._is_populating = False
        self.fd = -1
        try:
            self.fd = _open(folder)
            os.ftruncate(self.fd, num_bytes)
        except OSError as error:
            self.close()
            raise ConfigError(f"The shm processor cache cannot have {num_bytes} bytes of shared memory: {error.strerror}.") from error
        if folder is not None or not hasattr(os, "memfd_create"):
            free_bytes = os.fstatvfs(self.fd).f_bavail * os.fstatvfs(self.fd).f_frsize
            if free_bytes < num_bytes:
                self.close()
                raise ConfigError(
                    f"The shm processor cache needs {num_bytes} bytes in the folder for temporary files, which has {free_bytes}: "
                    "make --mm-processor-cache-gb smaller, or use --mm-processor-cache-type lru."
                )
        self.populate_ahead(0)

    def write(self, offset: int, mm_hash: bytes, generation: int, tensors: ItemTensors) -> tuple[ArrayLayout, ...]:
        """Writes an object into a span of `object_bytes(tensors)`; its header comes last, so that half an object is none.

        Raises:
            OSError: The memory cannot be had.
        """
        layout = []
        position = ALIGNMENT
        for name, array in tensors.items():
            flat = np.ascontiguousarray(array).reshape(-1).view(np.uint8)
            self._write(offset + position, flat.data)
            layout.append(ArrayLayout(name, array.dtype.str, array.shape, position))
            position += _aligned(array.nbytes)
        self._write(offset, memoryview(_HEADER.pack(generation, mm_hash)))
        self.populate_ahead(offset + position)
        return tuple(layout)

    def clear(self, offset: int) -> None:
        """Makes every handle to the object at an offset invalid."""
        os.pwrite(self.fd, bytes(_HEADER.size), offset)

    def rename(self) -> None:
        """Gives the segment another id: handles made until now belong to nobody."""
        self.segment_id = secrets.token_bytes(16)

    def populate_ahead(self, end: int) -> None:
        """Has the 64 MiB behind a position populated in the background, once for each part; there, writing is twice as fast.

        Where no descriptor or thread can be had, nothing happens until the next call.
        """
        with self._lock:
            begin = self._num_populated_bytes
            is_far_enough = min(end + AHEAD_BYTES // 2, self.num_bytes) <= begin
            if self._is_populating or is_far_enough or not hasattr(os, "posix_fallocate"):
                return
            try:
                # A descriptor of its own: the segment may be closed meanwhile.
                fd = os.dup(self.fd)
            except OSError:
                return
            self._is_populating = True
        end = min(max(end, begin) + AHEAD_BYTES, self.num_bytes)
        try:
            threading.Thread(target=self._populate, args=(fd, begin, end), name="inset-shm-populate", daemon=True).start()
        except (RuntimeError, MemoryError):
            self._end_populating(fd, begin)

    def close(self) -> None:
        """Gives the segment up; readers keep what they have mapped. Idempotent."""
        with self._lock:
            fd, self.fd = self.fd, -1
        if fd >= 0:
            os.close(fd)

    def _populate(self, fd: int, begin: int, end: int) -> None:
        try:
            # In small steps, because writers of the same file wait for each.
            for offset in range(begin, end, MIB):
                os.posix_fallocate(fd, offset, min(MIB, end - offset))
        except OSError:
            # No memory now: writing will say so, where it can be answered.
            end = begin
        finally:
            self._end_populating(fd, end)

    def _end_populating(self, fd: int, end: int) -> None:
        os.close(fd)
        with self._lock:
            self._num_populated_bytes = end
            self._is_populating = False

    def _write(self, offset: int, data: memoryview) -> None:
        while data:
            num_written = os.pwrite(self.fd, data, offset)
            data, offset = data[num_written:], offset + num_written


def _open(folder: Path | None) -> int:
    if folder is None and hasattr(os, "memfd_create"):
        return os.memfd_create("inset-processor-cache")
    with tempfile.TemporaryFile(dir=folder) as file:
        return os.dup(file.fileno())


class SegmentReader:
    """A map of a segment in the process that reads it; what is read is viewed, never copied.

    The map is private: even code that got around the read-only views cannot harm the owner. It lives as long as a view of it.

    Args:
        fd: The segment; it stays the caller's.
        num_bytes: Its size.

    Raises:
        ConfigError: It cannot be mapped.
    """

    def __init__(self, fd: int, num_bytes: int) -> None:
        try:
            memory = mmap.mmap(fd, num_bytes, flags=mmap.MAP_PRIVATE | _MAP_NORESERVE, prot=mmap.PROT_READ | mmap.PROT_WRITE)
        except (OSError, ValueError) as error:
            raise ConfigError(f"The engine cannot map the {num_bytes} bytes of the shm processor cache.") from error
        # Through numpy, because its views keep the map from being closed under them.
        self._bytes = np.frombuffer(memory, np.uint8)
        self._bytes.flags.writeable = False
        self._memory = self._bytes.data

    def read(self, offset: int, mm_hash: bytes, generation: int, layout: Sequence[ArrayLayout]) -> ItemTensors | None:
        """Returns read-only views of an object, or None where something else lies there by now."""
        if _HEADER.unpack_from(self._memory, offset) != (generation, mm_hash):
            return None
        tensors = {}
        for name, dtype, shape, position in layout:
            begin, kind = offset + position, np.dtype(dtype)
            num_bytes = int(np.prod(shape, dtype=np.int64)) * kind.itemsize
            tensors[name] = self._bytes[begin : begin + num_bytes].view(kind).reshape(shape)
        return tensors
