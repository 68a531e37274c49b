"""The engine core's side: one thread speaks with the front ends, the main thread steps."""

from __future__ import annotations

import logging
import queue
import selectors
import socket
import threading
import time
from collections import deque
from collections.abc import Callable
from enum import Enum
from pathlib import Path
from typing import TYPE_CHECKING, Final, NamedTuple, cast

import zmq

from inset.engine.messages import EngineStats, Heartbeat
from inset.engine.process import control
from inset.engine.process.reception import Admit, Reception
from inset.engine.process.routing import EventRouter
from inset.engine.wire import decode_frames, encode_frames

if TYPE_CHECKING:
    from inset.engine.engine_core import EngineCore
    from inset.engine.messages import EngineCommand, EngineEvent

__all__ = ["CoreServer"]

logger = logging.getLogger(__name__)

_JOIN_SECONDS: Final = 10.0
_BEAT_SECONDS: Final = 1.0
_BYTES_BETWEEN_BEATS: Final = 64 << 20


class _Change(Enum):
    """A front end comes or goes."""

    JOINED = "joined"
    LEFT = "left"


class _FrontCommand(NamedTuple):
    """What a front end says, or what happened to it."""

    front_id: str
    command: EngineCommand | _Change


class CoreServer:
    """Serves front ends until told to stop or, if it had any, until the last one is gone.

    Args:
        folder: Where the sockets are; only this user can open it.
        admit: Checks a front end and joins its cache half; raises `InsetError` to refuse it. The first call makes the engine core.
        get_core: Returns the engine core once the first front end is admitted.
        outlives_fronts: Serve until told to stop, also where no front end is left: one may come again.
    """

    def __init__(self, folder: Path, *, admit: Admit, get_core: Callable[[], EngineCore], outlives_fronts: bool = False) -> None:
        self._get_core = get_core
        self._outlives_fronts = outlives_fronts
        self._commands: queue.SimpleQueue[_FrontCommand | None] = queue.SimpleQueue()
        self._router = EventRouter()
        self._outbox: deque[tuple[str, EngineEvent]] = deque()
        self._stats = EngineStats()
        self._listener = control.listen(folder)
        self._reception = Reception(self._listener, admit=admit, on_admitted=self._on_admitted)
        self._arrivals: deque[tuple[socket.socket, str]] = deque()
        self._received: dict[str, int] = {}
        self._beaten: dict[str, int] = {}
        self._next_beat = time.monotonic()
        self._context = zmq.Context()
        self._socket = self._context.socket(zmq.ROUTER)
        self._socket.set(zmq.ROUTER_MANDATORY, 1)
        self._socket.set(zmq.SNDHWM, 0)
        self._socket.set(zmq.RCVHWM, 0)
        self._socket.set(zmq.LINGER, 0)
        self._socket.bind(f"ipc://{folder / control.MESSAGE_SOCKET}")
        self._wake_reader, self._wake_writer = socket.socketpair()
        self._wake_reader.setblocking(False)
        self._fronts: dict[int, tuple[socket.socket, str]] = {}
        self._stopping = threading.Event()

    def serve(self) -> None:
        """Runs until the last front end is gone, or `stop` is called.

        Raises:
            Exception: A step failed; the process must end, and the front ends notice.
        """
        speaker = threading.Thread(target=self._speak, name="inset-core-speaker", daemon=True)
        speaker.start()
        try:
            self._step_until_stopped()
        finally:
            self.stop()
            speaker.join(_JOIN_SECONDS)
            self._socket.close()
            self._context.term()
            connections = [connection for connection, _ in (*self._fronts.values(), *self._arrivals)]
            for each in (self._listener, self._wake_reader, self._wake_writer, *connections):
                each.close()

    def stop(self) -> None:
        """Ends `serve`; may be called from any thread, and again."""
        self._stopping.set()
        self._commands.put(None)
        self._wake()

    def _step_until_stopped(self) -> None:
        core: EngineCore | None = None
        while not self._stopping.is_set():
            try:
                item = self._commands.get(block=core is None or not core.has_work)
            except queue.Empty:
                assert core is not None
                self._emit(core.step())
                self._stats = core.stats()
                continue
            if item is None:
                continue
            core = core or self._get_core()
            self._carry_out(core, item)
            self._stats = core.stats()

    def _carry_out(self, core: EngineCore, item: _FrontCommand) -> None:
        match item.command:
            case _Change.JOINED:
                self._router.add_front(item.front_id)
            case _Change.LEFT:
                for command in self._router.end_front(item.front_id):
                    self._emit(core.handle(command))
            case command if self._router.note(item.front_id, command):
                self._emit(core.handle(command), sender=item.front_id)

    def _emit(self, event: EngineEvent | None, *, sender: str | None = None) -> None:
        if event is None:
            return
        self._outbox.extend(self._router.split(event, sender=sender).items())
        self._wake()

    def _wake(self) -> None:
        try:
            self._wake_writer.send(b"\0", socket.MSG_DONTWAIT)
        except BlockingIOError:
            pass  # it is awake already
        except OSError:
            logger.debug("The speaking thread is gone")

    def _on_admitted(self, connection: socket.socket, front_id: str) -> None:
        """Takes a front end that has been met; called from the reception's threads."""
        self._received[front_id] = self._beaten[front_id] = 0
        self._commands.put(_FrontCommand(front_id, _Change.JOINED))
        self._arrivals.append((connection, front_id))
        self._wake()

    def _speak(self) -> None:
        """Waits on all sockets; the one thread that touches them."""
        try:
            with selectors.DefaultSelector() as selector:
                selector.register(self._listener, selectors.EVENT_READ)
                selector.register(self._wake_reader, selectors.EVENT_READ)
                selector.register(cast("int", self._socket.get(zmq.FD)), selectors.EVENT_READ)
                while not self._stopping.is_set():
                    self._watch_arrivals(selector)
                    self._drain_messages()
                    self._send_outbox()
                    self._beat()
                    self._drain_messages()  # sending may have taken the edge that the descriptor signals
                    for key, _ in selector.select(timeout=_BEAT_SECONDS):
                        self._on_readable(key.fileobj, selector)
        except Exception:
            logger.exception("The thread that speaks with front ends failed")
            self.stop()

    def _on_readable(self, source: object, selector: selectors.BaseSelector) -> None:
        if source is self._listener:
            self._reception.accept()
        elif source is self._wake_reader:
            self._wake_reader.recv(4096)
        elif isinstance(source, socket.socket) and source.fileno() in self._fronts and control.has_ended(source):
            connection, front_id = self._fronts.pop(source.fileno())
            selector.unregister(connection)
            connection.close()
            logger.info("The front end %s is gone", front_id)
            del self._received[front_id], self._beaten[front_id]
            self._commands.put(_FrontCommand(front_id, _Change.LEFT))
            if not self._fronts and not self._outlives_fronts:
                self.stop()

    def _watch_arrivals(self, selector: selectors.BaseSelector) -> None:
        while self._arrivals:
            connection, front_id = self._arrivals.popleft()
            self._fronts[connection.fileno()] = (connection, front_id)
            selector.register(connection, selectors.EVENT_READ)

    def _beat(self) -> None:
        """Tells front ends that this process runs, how it stands, and what has arrived: once a second, and where much has arrived."""
        is_due = time.monotonic() >= self._next_beat
        if is_due:
            self._next_beat = time.monotonic() + _BEAT_SECONDS
        for _, front_id in self._fronts.values():
            if is_due or self._received[front_id] - self._beaten[front_id] >= _BYTES_BETWEEN_BEATS:
                self._beaten[front_id] = self._received[front_id]
                self._send(front_id, Heartbeat(self._received[front_id], self._stats))

    def _drain_messages(self) -> None:
        while True:
            try:
                front_id, *frames = self._socket.recv_multipart(zmq.NOBLOCK, copy=False)
            except zmq.Again:
                return
            name = bytes(front_id.buffer).decode()
            if name not in self._received:
                continue  # sent before its end, which was noticed first
            self._received[name] += sum(len(frame.buffer) for frame in frames)
            self._commands.put(_FrontCommand(name, decode_frames([frame.buffer for frame in frames])))

    def _send_outbox(self) -> None:
        while self._outbox:
            self._send(*self._outbox.popleft())

    def _send(self, front_id: str, event: EngineEvent | Heartbeat) -> None:
        try:
            self._socket.send_multipart([front_id.encode(), *encode_frames(event)], zmq.NOBLOCK, copy=False)
        except zmq.ZMQError as error:
            logger.debug("The front end %s cannot be reached: %s", front_id, error)
