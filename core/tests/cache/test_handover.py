"""Handing an export over a unix socket."""

import os
import socket
import struct
from collections.abc import Iterator

import pytest

from inset.cache.handover import receive_export, send_export
from inset.cache.values import CacheExport


@pytest.fixture
def sockets() -> Iterator[tuple[socket.socket, socket.socket]]:
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_STREAM)
    with ours, theirs:
        ours.settimeout(0.2)
        theirs.settimeout(0.2)
        yield ours, theirs


def test_values_and_descriptors_arrive_and_the_sender_keeps_its_own(sockets: tuple[socket.socket, socket.socket]) -> None:
    fd = os.memfd_create("test")
    os.write(fd, b"shared")
    send_export(sockets[0], CacheExport((b"id", 7, "text"), (fd,)))
    with receive_export(sockets[1]) as export:
        assert export is not None
        assert export.values == (b"id", 7, "text")
        (received,) = export.fds
        assert received != fd
        assert os.pread(received, 10, 0) == b"shared"
    with pytest.raises(OSError):
        os.fstat(received)
    os.close(fd)


def test_type_without_shared_memory_hands_over_nothing(sockets: tuple[socket.socket, socket.socket]) -> None:
    send_export(sockets[0], None)
    with receive_export(sockets[1]) as export:
        assert export is None


@pytest.mark.parametrize(
    "sent",
    [b"", b"\0\0", struct.pack("!I", 5) + b"abc", struct.pack("!I", 1 << 30), struct.pack("!I", 2) + b"\xc1\xc1"],
    ids=["nothing", "half a header", "half a body", "absurd length", "no msgpack"],
)
def test_broken_hand_over_is_an_os_error(sockets: tuple[socket.socket, socket.socket], sent: bytes) -> None:
    sockets[0].sendall(sent)
    sockets[0].shutdown(socket.SHUT_WR)
    with pytest.raises(OSError), receive_export(sockets[1]):
        pass


def test_silent_sender_runs_into_the_time_out(sockets: tuple[socket.socket, socket.socket]) -> None:
    with pytest.raises(TimeoutError), receive_export(sockets[1]):
        pass
