"""The two sides of a control line understand each other, or say why not, and notice each other's end."""

from __future__ import annotations

import socket
import struct
from collections.abc import Iterator

import pytest

from inset.engine.process import control
from inset.errors import EngineDeadError

HELLO = control.Hello("0", [["inset", "0.1.0", "inset"]], "lru", 4096, 2048, 2048)


@pytest.fixture
def line() -> Iterator[tuple[socket.socket, socket.socket]]:
    one, two = socket.socketpair()
    for side in (one, two):
        side.settimeout(5)
    with one, two:
        yield one, two


def test_message_arrives_as_it_was_sent(line: tuple[socket.socket, socket.socket]) -> None:
    control.send(line[0], HELLO)
    assert control.receive(line[1], control.Hello) == HELLO


@pytest.mark.parametrize("junk", [struct.pack("!I", 1 << 31), struct.pack("!I", 3) + b"{}}", struct.pack("!I", 2) + b"[]"])
def test_what_is_no_message_is_refused(line: tuple[socket.socket, socket.socket], junk: bytes) -> None:
    line[0].sendall(junk)
    with pytest.raises(EngineDeadError, match="not a message"):
        control.receive(line[1], control.Hello)


def test_end_of_the_other_side_is_noticed_and_silence_is_not_an_end(line: tuple[socket.socket, socket.socket]) -> None:
    line[1].setblocking(False)
    assert not control.has_ended(line[1])
    line[0].close()
    assert control.has_ended(line[1])
    with pytest.raises(EngineDeadError, match="has ended"):
        control.receive(line[1], control.Hello)
