"""The line between one front end and the engine core: they meet on it, hand over the cache, and notice each other's end.

A unix stream socket in a folder that only this user can open. The front end says hello and hands over what its half of the processor cache
exports; the engine core answers ready, or why not. The connection then stays open and silent: the system closes it when either process
ends, however it ends, so the other one knows at once.
"""

from __future__ import annotations

import socket
import struct
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, TypeVar

import msgspec

from inset.errors import EngineDeadError

__all__ = ["CONTROL_SOCKET", "MESSAGE_SOCKET", "REFUSAL", "Hello", "Reply", "connect", "has_ended", "listen", "receive", "send"]

T = TypeVar("T")

CONTROL_SOCKET: Final = "control.sock"
MESSAGE_SOCKET: Final = "messages.sock"
REFUSAL: Final = "refusal"
"""A file with the reason why the engine core does not start, for its parent to tell."""

_LENGTH: Final = struct.Struct("!I")
_MAX_MESSAGE_BYTES: Final = 1 << 20


@dataclass(frozen=True, slots=True)
class Hello:
    """What a front end says first.

    Attributes:
        front_id: Its name, unique among the front ends of one engine core.
        resolved: The plugins that it loaded.
        cache_type: Its processor cache's type, or None.
        max_model_len: As in `EngineLimits`.
        encoder_compute_budget: The same.
        encoder_cache_size: The same.
    """

    front_id: str
    resolved: list[list[str]]
    cache_type: str | None
    max_model_len: int
    encoder_compute_budget: int
    encoder_cache_size: int


@dataclass(frozen=True, slots=True)
class Reply:
    """What the engine core answers.

    Attributes:
        refusal: Why it does not work with this front end, or None when it is ready.
    """

    refusal: str | None = None


def listen(folder: Path) -> socket.socket:
    """Returns the engine core's listening socket."""
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    listener.bind(str(folder / CONTROL_SOCKET))
    listener.listen()
    return listener


def connect(folder: Path) -> socket.socket:
    """Returns a front end's connection.

    Raises:
        OSError: The engine core does not listen yet, or no longer.
    """
    connection = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        connection.connect(str(folder / CONTROL_SOCKET))
    except OSError:
        connection.close()
        raise
    return connection


def send(connection: socket.socket, message: Any) -> None:
    """Sends one message."""
    body = msgspec.json.encode(message)
    connection.sendall(_LENGTH.pack(len(body)) + body)


def receive(connection: socket.socket, kind: type[T]) -> T:
    """Receives one message of a kind.

    Raises:
        EngineDeadError: The other side has ended, or sent something else.
        TimeoutError: The connection's time-out has passed.
    """
    (length,) = _LENGTH.unpack(_receive_exactly(connection, _LENGTH.size))
    if length > _MAX_MESSAGE_BYTES:
        raise EngineDeadError("The other process sent something that is not a message of this version.")
    try:
        return msgspec.json.decode(_receive_exactly(connection, length), type=kind)
    except msgspec.MsgspecError as error:
        raise EngineDeadError(f"The other process sent something that is not a message of this version: {error}") from error


def has_ended(connection: socket.socket) -> bool:
    """Whether the other side of a connection that does not block has ended; it is silent otherwise."""
    try:
        return not connection.recv(1)
    except BlockingIOError:
        return False
    except OSError:
        return True


def _receive_exactly(connection: socket.socket, num_bytes: int) -> bytes:
    received = b""
    while len(received) < num_bytes:
        part = connection.recv(num_bytes - len(received))
        if not part:
            raise EngineDeadError("The other process has ended.")
        received += part
    return received
