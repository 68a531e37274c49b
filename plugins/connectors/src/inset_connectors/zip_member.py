"""Finds one member of a zip archive in memory."""

from __future__ import annotations

import io
import stat
import struct
import zipfile
import zlib
from collections.abc import Generator, Iterator
from contextlib import contextmanager
from typing import Final, NamedTuple

from inset.api import FetchLimits, MediaFetchError, MediaPolicyError
from inset_connectors.pieces import PIECE_BYTES

__all__ = ["Member", "find_zip_member"]

MAX_DIRECTORY_BYTES: Final = 4 * 1024 * 1024
"""Largest directory that is read: about 60,000 members, whose descriptions take some ten times as much memory."""

_ENCRYPTED: Final = 0x1
_METHODS: Final = (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED)


class Member(NamedTuple):
    """A member of an archive.

    Attributes:
        num_bytes: Its size, as the archive says.
        pieces: Its bytes; taking one blocks and may raise MediaFetchError.
    """

    num_bytes: int
    pieces: Generator[bytes, None, None]


class _Archive(io.BytesIO):
    def read(self, size: int | None = -1, /) -> bytes:
        # zipfile reads the whole directory at once, with the size that the archive claims, and makes an object for each entry.
        if size is not None and size > MAX_DIRECTORY_BYTES:
            raise MediaFetchError("The zip archive has too many members.", stage="fetch")
        return super().read(size)


def find_zip_member(data: bytes, name: str, limits: FetchLimits) -> Member:
    """Returns a member of a zip archive.

    Args:
        data: The archive.
        name: The member's path, as it is written in the archive's directory.
        limits: Those of the archive, which hold already.

    Raises:
        MediaPolicyError: It is a link or a folder.
        MediaFetchError: It is not there, or more than once, or encrypted, or packed by something else than deflate; or the archive is
            damaged.
    """
    with _damage_named():
        archive = zipfile.ZipFile(_Archive(data))
        found = [info for info in archive.infolist() if info.filename == name]
        if len(found) != 1:
            raise MediaFetchError(f"The zip archive has {'several members' if found else 'no member'} of that name.", stage="fetch")
        (info,) = found
        kind = stat.S_IFMT(info.external_attr >> 16)
        if kind not in (0, stat.S_IFREG):
            raise MediaPolicyError("The member of the zip archive is a link, or no regular file.", stage="fetch")
        if info.flag_bits & _ENCRYPTED or info.compress_type not in _METHODS:
            raise MediaFetchError("The member of the zip archive is encrypted, or not packed by deflate.", stage="fetch")
        return Member(info.file_size, _unpack(archive, info))


def _unpack(archive: zipfile.ZipFile, info: zipfile.ZipInfo) -> Generator[bytes, None, None]:
    with _damage_named(), archive.open(info) as member:
        while piece := member.read(PIECE_BYTES):
            yield piece


@contextmanager
def _damage_named() -> Iterator[None]:
    try:
        yield
    except (zipfile.BadZipFile, zlib.error, struct.error, EOFError, OSError, NotImplementedError, RuntimeError, ValueError) as error:
        raise MediaFetchError(f"The zip archive is damaged, or none ({type(error).__name__}).", stage="fetch") from None
