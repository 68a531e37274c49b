"""file: URLs under one folder, walked component by component without following a link."""

from __future__ import annotations

import asyncio
import errno
import os
import stat
from collections.abc import AsyncIterator, Sequence
from pathlib import Path, PurePosixPath
from typing import ClassVar, Final
from urllib.parse import unquote_to_bytes

from inset.errors import MediaFetchError, MediaPolicyError
from inset.media.connector import MediaConnector
from inset.media.stream import ByteStream, FetchLimits
from inset.media.url import MediaUrl

__all__ = ["FileConnector", "open_below", "read_file"]

CHUNK_BYTES: Final = 1024 * 1024
_FOLDER_FLAGS: Final = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
# O_NONBLOCK: opening a FIFO would wait for a writer for ever.
_FILE_FLAGS: Final = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC


class FileConnector(MediaConnector):
    """The built-in connector for file: URLs; serves what lies under ``--allowed-local-media-path``.

    The path is walked from that folder, one component after the other, each relative to the folder that was opened before, and no link
    is followed on the way: what is swapped meanwhile cannot lead outside. Only regular files are read.
    """

    schemes: ClassVar[tuple[str, ...]] = ("file",)

    async def open(self, url: MediaUrl, limits: FetchLimits) -> ByteStream:
        """Returns the bytes of a file.

        Raises:
            MediaPolicyError: The option is unset, or the path leads out of the folder, over a link, or to something that is no file.
            TooLargeError: The file is over the limit.
            MediaFetchError: There is no such file, or it cannot be read.
        """
        root = self.context.config.allowed_local_media_path
        if root is None:
            raise MediaPolicyError("Cannot load local files without --allowed-local-media-path.", stage="fetch")
        pieces = await asyncio.to_thread(_read_under, root, url, limits)
        return ByteStream(chunks=_give(pieces))


async def _give(pieces: list[bytes]) -> AsyncIterator[bytes]:
    for piece in pieces:
        yield piece


def _read_under(root: Path, url: MediaUrl, limits: FetchLimits) -> list[bytes]:
    # One call in one thread owns the descriptor from its opening to its end, so that a cancelled fetch cannot close it under a read.
    components = _find_components(root, url)
    try:
        return read_file(open_below(root, components), limits)
    except OSError as error:
        raise _refuse(error) from None  # its text holds the path


def open_below(root: Path, components: Sequence[bytes]) -> int:
    """Opens a file for reading, walking from a folder without following a link, and returns its descriptor, which the caller closes.

    Args:
        root: May itself be reached over links.
        components: Names of folders and, last, of the file; none may be ``..`` or hold a slash.

    Raises:
        OSError: A component is not there, is a link (ELOOP, ENOTDIR) or may not be read; its text holds the path.
    """
    *folders, name = components
    current = os.open(root, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        for folder in folders:
            following = os.open(folder, _FOLDER_FLAGS, dir_fd=current)
            os.close(current)
            current = following
        return os.open(name, _FILE_FLAGS, dir_fd=current)
    finally:
        os.close(current)


def read_file(descriptor: int, limits: FetchLimits) -> list[bytes]:
    """Returns the bytes of a regular file in pieces of 1 MiB, and closes its descriptor.

    Raises:
        MediaPolicyError: It is no regular file.
        TooLargeError: It is over the limit.
        OSError: It cannot be read.
    """
    try:
        status = os.fstat(descriptor)
        if not stat.S_ISREG(status.st_mode):
            raise MediaPolicyError("The URL leads to something that is not a regular file.", stage="fetch")
        limits.check_size(status.st_size)
        pieces: list[bytes] = []
        num_bytes = 0
        while piece := os.read(descriptor, CHUNK_BYTES):
            num_bytes += len(piece)
            limits.check_size(num_bytes)
            pieces.append(piece)
        return pieces
    finally:
        os.close(descriptor)


def _find_components(root: Path, url: MediaUrl) -> list[bytes]:
    """Returns the path below the folder, without touching the file system except to know the folder's other spelling."""
    outside = MediaPolicyError("The file: URL leads out of the folder that --allowed-local-media-path names.", stage="fetch")
    if url.host is not None:
        raise MediaPolicyError("A file: URL names a file of this machine: write file:///PATH.", stage="fetch")
    encoded = url.text.removeprefix("file:").removeprefix("//")
    path = unquote_to_bytes(encoded.partition("?")[0].partition("#")[0])
    parts = path.split(b"/")
    if not path.startswith(b"/") or b"\0" in path or b".." in parts:
        raise outside
    walked = PurePosixPath(os.fsdecode(path))
    for folder in (PurePosixPath(root.absolute()), PurePosixPath(root.resolve())):
        if walked.is_relative_to(folder) and walked != folder:
            return [os.fsencode(part) for part in walked.relative_to(folder).parts]
    raise outside


def _refuse(error: OSError) -> MediaFetchError | MediaPolicyError:
    if error.errno in (errno.ELOOP, errno.EMLINK, errno.ENOTDIR):
        return MediaPolicyError("The file: URL leads over a symbolic link, or over a file as if it were a folder.", stage="fetch")
    if error.errno in (errno.ENOENT, errno.ENAMETOOLONG):
        return MediaFetchError("There is no such file in the folder that --allowed-local-media-path names.", stage="fetch")
    return MediaFetchError(f"The file cannot be read ({errno.errorcode.get(error.errno or 0, 'unknown')}).", stage="fetch")
