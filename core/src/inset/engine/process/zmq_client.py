"""A front end's side: one thread carries commands to the engine core's process, and its events back."""

from __future__ import annotations

import contextlib
import logging
import selectors
import socket
import threading
import time
from collections import deque
from pathlib import Path
from typing import TYPE_CHECKING, Final, cast

import zmq

from inset.cache.handover import send_export
from inset.engine.core_client import CoreClient, EngineListener
from inset.engine.messages import AddRequests, Heartbeat
from inset.engine.process import control
from inset.engine.wire import decode_frames, encode_frames
from inset.errors import ConfigError, EngineDeadError, OverloadedError

if TYPE_CHECKING:
    from inset.cache.values import CacheExport
    from inset.engine.messages import EngineCommand
    from inset.engine.wire import Frame

__all__ = ["ZmqClient"]

logger = logging.getLogger(__name__)

_MAX_BYTES_ON_THE_WAY: Final = 4 << 30
_JOIN_SECONDS: Final = 10.0


class ZmqClient(CoreClient):
    """The engine core in a process of its own.

    Args:
        folder: Where the engine core's sockets are.
        hello: What this front end is.
        export: What its half of the processor cache hands over, or None.
        ready_timeout_seconds: How long the engine core may take to load its model.

    Raises:
        ConfigError: The engine core refuses this front end; the message is its own.
        EngineDeadError: The engine core ended before it was ready.
    """

    def __init__(self, folder: Path, *, hello: control.Hello, export: CacheExport | None, ready_timeout_seconds: float = 600.0) -> None:
        self._connection = control.connect(folder)
        try:
            self._meet(hello, export, ready_timeout_seconds)
        except BaseException:
            self._connection.close()
            raise
        self._context = zmq.Context()
        self._socket = self._context.socket(zmq.DEALER)
        self._socket.set(zmq.IDENTITY, hello.front_id.encode())
        self._socket.set(zmq.SNDHWM, 0)
        self._socket.set(zmq.RCVHWM, 0)
        self._socket.set(zmq.LINGER, 0)
        self._socket.connect(f"ipc://{folder / control.MESSAGE_SOCKET}")
        self._outbox: deque[list[Frame]] = deque()
        self._num_sent_bytes = 0
        self._num_received_bytes = 0
        self._last_heard_seconds = time.monotonic()
        self._lock = threading.Lock()
        self._wake_reader, self._wake_writer = socket.socketpair()
        self._wake_reader.setblocking(False)
        self._thread: threading.Thread | None = None
        self._dead: EngineDeadError | None = None
        self._closing = threading.Event()

    def _meet(self, hello: control.Hello, export: CacheExport | None, timeout_seconds: float) -> None:
        self._connection.settimeout(timeout_seconds)
        control.send(self._connection, hello)
        send_export(self._connection, export)
        try:
            reply = control.receive(self._connection, control.Reply)
        except TimeoutError as error:
            raise EngineDeadError(f"The engine core was not ready within {timeout_seconds:.0f} seconds.") from error
        if reply.refusal is not None:
            raise ConfigError(reply.refusal)
        self._connection.setblocking(False)

    def start(self, listener: EngineListener) -> None:
        self._thread = threading.Thread(target=self._run, args=(listener,), name="inset-core-client", daemon=True)
        self._thread.start()

    def send(self, command: EngineCommand) -> None:
        if self._dead is not None or self._closing.is_set():
            raise EngineDeadError("The way to the engine core is closed." if self._dead is None else self._dead.message)
        frames = encode_frames(command)
        num_bytes = sum(len(frame) for frame in frames)
        with self._lock:
            # Requests alone are refused: whatever else got lost would leave something held in the engine core.
            on_the_way = self._num_sent_bytes - self._num_received_bytes
            if isinstance(command, AddRequests) and on_the_way + num_bytes > _MAX_BYTES_ON_THE_WAY:
                raise OverloadedError("Too much is on its way to the engine core; come again later.", stage="transfer")
            self._outbox.append(frames)
            self._num_sent_bytes += num_bytes
        self._wake()

    @property
    def is_alive(self) -> bool:
        return self._dead is None and not self._closing.is_set()

    @property
    def seconds_silent(self) -> float:
        return time.monotonic() - self._last_heard_seconds

    def close(self) -> None:
        if self._closing.is_set():
            return
        self._closing.set()
        self._wake()
        if self._thread is not None:
            self._thread.join(_JOIN_SECONDS)
        self._socket.close()
        self._context.term()
        self._connection.close()
        self._wake_reader.close()
        self._wake_writer.close()

    def _wake(self) -> None:
        with contextlib.suppress(BlockingIOError):  # it is awake already
            self._wake_writer.send(b"\0", socket.MSG_DONTWAIT)

    def _run(self, listener: EngineListener) -> None:
        try:
            self._carry(listener)
        except Exception:
            logger.exception("The thread that speaks with the engine core failed")
            self._dead = EngineDeadError("The way to the engine core is broken; restart the server.")
        if self._dead is not None:
            listener.on_death(self._dead)

    def _carry(self, listener: EngineListener) -> None:
        with selectors.DefaultSelector() as selector:
            for source in (self._connection, self._wake_reader, cast("int", self._socket.get(zmq.FD))):
                selector.register(source, selectors.EVENT_READ)
            while not self._closing.is_set():
                self._receive_events(listener)
                self._send_outbox()
                self._receive_events(listener)  # sending may have taken the edge that the descriptor signals
                for key, _ in selector.select(timeout=1.0):
                    if key.fileobj is self._wake_reader:
                        self._wake_reader.recv(4096)
                    elif key.fileobj is self._connection and control.has_ended(self._connection):
                        self._receive_events(listener)
                        self._dead = EngineDeadError("The engine core has ended; what ran in it is lost. Restart the server.")
                        return

    def _receive_events(self, listener: EngineListener) -> None:
        while True:
            try:
                frames = self._socket.recv_multipart(zmq.NOBLOCK)
            except zmq.Again:
                return
            event = decode_frames(frames)
            self._last_heard_seconds = time.monotonic()
            if isinstance(event, Heartbeat):
                self._num_received_bytes = event.num_received_bytes
                listener.on_stats(event.stats)
            else:
                listener.on_event(event)

    def _send_outbox(self) -> None:
        while True:
            with self._lock:
                if not self._outbox:
                    return
                frames = self._outbox.popleft()
            self._socket.send_multipart(frames, zmq.NOBLOCK, copy=False)
