from __future__ import annotations

import asyncio
import socket
import threading

import pytest

from inset.testing.media_server import MediaServer
from inset.testing.network_block import NetworkBlockedError, loopback_only

ELSEWHERE = [("93.184.215.14", 80), ("10.0.0.1", 80), ("169.254.169.254", 80), ("::ffff:8.8.8.8", 80, 0, 0)]


@pytest.mark.parametrize("address", ELSEWHERE, ids=[address[0] for address in ELSEWHERE])
def test_no_connection_leaves_the_machine(address: tuple[str, int]) -> None:
    """The whole run is under the block: the root conftest.py asks for it."""
    family = socket.AF_INET6 if ":" in address[0] else socket.AF_INET
    for kind in (socket.SOCK_STREAM, socket.SOCK_DGRAM):
        with socket.socket(family, kind) as client:
            client.settimeout(5)
            with pytest.raises(NetworkBlockedError, match="loopback"):
                client.connect(address)


def test_no_datagram_leaves_the_machine() -> None:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as client, pytest.raises(NetworkBlockedError):
        client.sendto(b"x", ("93.184.215.14", 53))


def test_no_name_is_looked_up() -> None:
    for look_up in (lambda: socket.getaddrinfo("example.com", 80), lambda: socket.gethostbyname("example.com")):
        with pytest.raises(NetworkBlockedError, match=r"not example\.com"):
            look_up()


def test_other_threads_and_loops_are_covered() -> None:
    errors: list[BaseException] = []

    def connect() -> None:
        try:
            asyncio.run(asyncio.wait_for(asyncio.open_connection("93.184.215.14", 80), 5))
        except OSError as error:
            errors.append(error)

    thread = threading.Thread(target=connect)
    thread.start()
    thread.join(20)
    assert [type(error) for error in errors] == [NetworkBlockedError]


@pytest.mark.parametrize("host", ["127.0.0.1", "localhost", "127.1.2.3"])
def test_loopback_stays_reachable(media_server: MediaServer, host: str) -> None:
    assert socket.getaddrinfo(host, media_server.port)
    if host != "127.1.2.3":
        socket.create_connection((host, media_server.port), timeout=5).close()


def test_unix_sockets_are_left_alone() -> None:
    first, second = socket.socketpair()
    with first, second:
        first.sendall(b"x")
        assert second.recv(1) == b"x"


def test_blocks_may_be_nested() -> None:
    with loopback_only(), loopback_only():
        pass
    with socket.socket() as client, pytest.raises(NetworkBlockedError):
        client.connect(("93.184.215.14", 80))
