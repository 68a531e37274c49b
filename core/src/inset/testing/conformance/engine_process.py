"""A second process that runs the engine half of a processor cache, for the conformance suite.

Commands and answers are msgpack in frames with a length; arrays travel as dtype, shape and bytes. Nothing is pickled.
"""

from __future__ import annotations

import dataclasses
import socket
import struct
import subprocess
import sys
from collections.abc import Sequence
from typing import Any, Final, cast

import msgspec
import numpy as np

from inset.cache.base import ProcessorCacheEngine
from inset.cache.handover import receive_export, send_export
from inset.cache.values import CacheExport, CacheMessage, CacheStats, CommittedItem, MultiModalCacheMissError
from inset.inputs import ItemTensors
from inset.registry import load_object

__all__ = ["EngineProcess", "RemoteEngine"]

LIMIT_SECONDS: Final = 30.0
_LENGTH: Final = struct.Struct("!Q")
_ARRAY: Final = "__array__"


def _pack(value: object) -> object:
    if isinstance(value, np.ndarray):
        return {_ARRAY: [value.dtype.str, list(value.shape), value.tobytes()]}
    raise TypeError(f"A cache message holds a {type(value).__name__}; only plain values and numpy arrays may travel.")


def _unpack(value: Any) -> Any:
    if isinstance(value, dict):
        if _ARRAY in value:
            dtype, shape, data = value[_ARRAY]
            return np.frombuffer(data, np.dtype(dtype)).reshape(shape)
        return {key: _unpack(item) for key, item in value.items()}
    return [_unpack(item) for item in value] if isinstance(value, list) else value


def _send(connection: socket.socket, value: object) -> None:
    body = msgspec.msgpack.encode(value, enc_hook=_pack)
    connection.sendall(_LENGTH.pack(len(body)) + body)


def _receive(connection: socket.socket) -> Any:
    (num_bytes,) = _LENGTH.unpack(_read(connection, _LENGTH.size))
    return _unpack(msgspec.msgpack.decode(_read(connection, num_bytes), strict=False))


def _read(connection: socket.socket, num_bytes: int) -> bytearray:
    data = bytearray()
    while len(data) < num_bytes:
        part = connection.recv(min(1 << 20, num_bytes - len(data)))
        if not part:
            raise ConnectionError("The other process has gone.")
        data += part
    return data


class EngineProcess:
    """Owns the second process; engine halves in it come and go."""

    def __init__(self) -> None:
        self.connection, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_STREAM)
        self.connection.settimeout(LIMIT_SECONDS)
        command = [sys.executable, "-m", __name__, str(theirs.fileno())]
        self.process = subprocess.Popen(command, pass_fds=[theirs.fileno()])
        theirs.close()

    def call(self, name: str, *arguments: object) -> Any:
        """Calls a method of the engine half there.

        Raises:
            MultiModalCacheMissError: It was raised there.
            ConnectionError: The process has gone.
        """
        _send(self.connection, [name, *arguments])
        return self.answer()

    def answer(self) -> Any:
        """Reads the answer to a command."""
        kind, value = _receive(self.connection)
        if kind == "miss":
            raise MultiModalCacheMissError(value[0], lost_before=value[1])
        return value

    def kill(self) -> None:
        """Ends the process without a warning."""
        self.process.kill()
        self.process.wait(LIMIT_SECONDS)
        self.connection.close()

    def close(self) -> None:
        """Ends the process by closing the connection, and waits for it."""
        self.connection.close()
        self.process.wait(LIMIT_SECONDS)


class RemoteEngine(ProcessorCacheEngine):
    """The engine half in the second process, as the suite sees it.

    Args:
        process: Where it lives.
        engine_class: What it is; importable there.
        capacity_bytes: As for the class itself.
    """

    def __init__(self, process: EngineProcess, engine_class: type[ProcessorCacheEngine], *, capacity_bytes: int) -> None:
        super().__init__(capacity_bytes=capacity_bytes)
        self._process = process
        process.call("start", f"{engine_class.__module__}:{engine_class.__qualname__}", capacity_bytes)

    def attach(self, export: CacheExport) -> None:
        _send(self._process.connection, ["attach"])
        send_export(self._process.connection, export)
        self._process.answer()

    def apply(self, message: CacheMessage) -> None:
        self._process.call("apply", message)

    def resolve(self, request_id: str, items: Sequence[CommittedItem]) -> Sequence[ItemTensors]:
        plain = [(item.mm_hash, None if item.tensors is None else dict(item.tensors), item.handle) for item in items]
        return cast("Sequence[ItemTensors]", self._process.call("resolve", request_id, plain))

    def release(self, request_id: str) -> None:
        self._process.call("release", request_id)

    def reset(self) -> None:
        self._process.call("reset")

    @property
    def stats(self) -> CacheStats:
        return CacheStats(**self._process.call("stats"))

    def close(self) -> None:
        self._process.call("close")


def _carry_out(engine: ProcessorCacheEngine, connection: socket.socket, name: str, arguments: Sequence[Any]) -> object:
    match name:
        case "attach":
            with receive_export(connection) as export:
                assert export is not None
                engine.attach(export)
                return None
        case "resolve":
            request_id, plain = arguments
            return [dict(tensors) for tensors in engine.resolve(request_id, [CommittedItem(*item) for item in plain])]
        case "stats":
            return dataclasses.asdict(engine.stats)
        case _:
            return getattr(engine, name)(*arguments)


def _main(connection: socket.socket) -> None:
    engine: ProcessorCacheEngine | None = None
    while True:
        try:
            name, *arguments = _receive(connection)
        except ConnectionError:
            return
        try:
            if name == "start":
                engine_class = cast("type[ProcessorCacheEngine]", load_object(arguments[0]))
                engine = engine_class(capacity_bytes=arguments[1])
                _send(connection, ["ok", None])
            else:
                assert engine is not None
                _send(connection, ["ok", _carry_out(engine, connection, name, arguments)])
        except MultiModalCacheMissError as error:
            _send(connection, ["miss", [list(error.missing), error.lost_before]])


if __name__ == "__main__":
    _main(socket.socket(fileno=int(sys.argv[1])))
