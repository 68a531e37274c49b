"""Finds one member of a tar archive in memory, plain or packed by gzip."""

from __future__ import annotations

import gzip
import io
import tarfile
import zlib
from collections.abc import Generator, Iterator
from contextlib import contextmanager
from typing import IO, Final

from inset.api import FetchLimits, MediaFetchError, MediaPolicyError
from inset_connectors.pieces import PIECE_BYTES
from inset_connectors.zip_member import Member

__all__ = ["find_tar_member"]

MAX_MEMBERS: Final = 16_384
"""Most members that are looked at: about a second of work, and their descriptions stay in memory until the right one is found."""

_BLOCK_BYTES: Final = 64 * 1024
_GZIP: Final = b"\x1f\x8b"


class _Unpacked(io.RawIOBase):
    """Reads what a packed archive unpacks to, and counts it."""

    def __init__(self, packed: bytes, limits: FetchLimits) -> None:
        self._file: IO[bytes] = gzip.GzipFile(fileobj=io.BytesIO(packed))  # type: ignore[assignment]  # it has all that is used here
        self._limits = limits
        self._num_bytes = 0

    def read(self, size: int = -1, /) -> bytes:
        data = self._file.read(size)
        self._num_bytes += len(data)
        self._limits.check_size(self._num_bytes)
        return data


def find_tar_member(data: bytes, name: str, limits: FetchLimits) -> Member:
    """Returns the first member of that name in a tar archive.

    Args:
        data: The archive, plain or packed by gzip.
        name: The member's path in the archive; a leading ``./`` there counts for nothing.
        limits: Those of the archive; they hold for what it unpacks to as well.

    Raises:
        MediaPolicyError: The member is a link, or no regular file.
        TooLargeError: More than allowed had to be unpacked to reach the member.
        MediaFetchError: It is not there, or not among the first 16,384 members, or the archive is damaged.
    """
    file: IO[bytes] = _Unpacked(data, limits) if data.startswith(_GZIP) else io.BytesIO(data)  # type: ignore[assignment]  # only read() is used
    with _damage_named():
        archive = tarfile.open(fileobj=file, mode="r|", bufsize=_BLOCK_BYTES)  # noqa: SIM115  # read to its end by whoever takes the pieces
        for number, info in enumerate(archive):
            if number >= MAX_MEMBERS:
                raise MediaFetchError("The tar archive has too many members.", stage="fetch")
            if info.name.removeprefix("./") == name:
                return _take(archive, info)
            limits.check_size(archive.offset)  # where the next header lies; on the way to one behind the end tarfile would read for years
    raise MediaFetchError("The tar archive has no member of that name.", stage="fetch")


def _take(archive: tarfile.TarFile, info: tarfile.TarInfo) -> Member:
    member = archive.extractfile(info) if info.isreg() and not info.issparse() else None
    if member is None:
        raise MediaPolicyError("The member of the tar archive is a link, or no regular file.", stage="fetch")
    return Member(info.size, _unpack(member))


def _unpack(member: IO[bytes]) -> Generator[bytes, None, None]:
    with _damage_named():
        while piece := member.read(PIECE_BYTES):
            yield piece


@contextmanager
def _damage_named() -> Iterator[None]:
    try:
        yield
    except (tarfile.TarError, zlib.error, EOFError, IndexError, OSError, RecursionError, ValueError) as error:
        raise MediaFetchError(f"The tar archive is damaged, or none ({type(error).__name__}).", stage="fetch") from None
