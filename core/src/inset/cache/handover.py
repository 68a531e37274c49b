"""Hands what a front half exports to an engine half in another process, over a unix socket."""

from __future__ import annotations

import os
import socket
import struct
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

import msgspec

from inset.cache.values import CacheExport

__all__ = ["receive_export", "send_export"]

MAX_FDS: Final = 16
MAX_BODY_BYTES: Final = 65536
_HEADER: Final = struct.Struct("!I")


def send_export(connection: socket.socket, export: CacheExport | None) -> None:
    """Sends an export with duplicates of its descriptors; the front half keeps its own.

    Args:
        connection: A connected unix stream socket; its time-out holds.
        export: What `ProcessorCacheFront.export` gave, None included.

    Raises:
        OSError: The other side is gone, or the time-out has passed.
    """
    body = msgspec.msgpack.encode(None if export is None else export.values)
    fds = () if export is None else export.fds
    assert len(fds) <= MAX_FDS
    assert len(body) <= MAX_BODY_BYTES
    socket.send_fds(connection, [_HEADER.pack(len(body))], fds)
    connection.sendall(body)


@contextmanager
def receive_export(connection: socket.socket) -> Iterator[CacheExport | None]:
    """Receives an export; its descriptors are closed at the end of the block, so attach inside it.

    Args:
        connection: A connected unix stream socket; its time-out holds.

    Raises:
        OSError: The other side is gone, sent something else, or the time-out has passed.
    """
    header, fds, _, _ = socket.recv_fds(connection, _HEADER.size, MAX_FDS)
    try:
        header += _receive(connection, _HEADER.size - len(header))
        (num_bytes,) = _HEADER.unpack(header)
        if num_bytes > MAX_BODY_BYTES:
            raise ConnectionError(f"The hand-over of a processor cache announces {num_bytes} bytes; at most {MAX_BODY_BYTES} are taken.")
        values = _decode(_receive(connection, num_bytes))
        yield None if values is None else CacheExport(values, tuple(fds))
    finally:
        for fd in fds:
            os.close(fd)


def _decode(body: bytes) -> tuple[str | bytes | int, ...] | None:
    try:
        values: list[str | bytes | int] | None = msgspec.msgpack.decode(body)
    except msgspec.DecodeError as error:
        raise ConnectionError("The hand-over of a processor cache cannot be read.") from error
    return None if values is None else tuple(values)


def _receive(connection: socket.socket, num_bytes: int) -> bytes:
    parts = []
    while num_bytes:
        part = connection.recv(num_bytes)
        if not part:
            raise ConnectionError("The other half of the processor cache closed the connection during the hand-over.")
        parts.append(part)
        num_bytes -= len(part)
    return b"".join(parts)
