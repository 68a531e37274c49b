"""The engine core's side: one thread speaks with the front ends, the main thread steps."""

from __future__ import annotations

import logging
import queue
import selectors
import socket
import threading
from collections import deque
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Final, NamedTuple, cast

import zmq

from inset.cache.handover import receive_export
from inset.engine.process import control
from inset.engine.process.routing import EventRouter
from inset.engine.wire import decode_frames, encode_frames
from inset.errors import InsetError

if TYPE_CHECKING:
    from inset.cache.base import CacheExport
    from inset.engine.engine_core import EngineCore
    from inset.engine.messages import EngineCommand, EngineEvent

__all__ = ["CoreServer"]

logger = logging.getLogger(__name__)

_HELLO_SECONDS: Final = 10.0

Admit = Callable[[control.Hello, "CacheExport | None"], None]


class _FrontCommand(NamedTuple):
    """A command, or None when its front end has gone."""

    front_id: str
    command: EngineCommand | None


class CoreServer:
    """Serves front ends until told to stop or, if it had any, until the last one is gone.

    Args:
        folder: Where the sockets are; only this user can open it.
        admit: Checks a front end and joins its cache half; raises `InsetError` to refuse it. The first call makes the engine core.
        get_core: Returns the engine core once the first front end is admitted.
    """

    def __init__(self, folder: Path, *, admit: Admit, get_core: Callable[[], EngineCore]) -> None:
        self._admit = admit
        self._get_core = get_core
        self._commands: queue.SimpleQueue[_FrontCommand | None] = queue.SimpleQueue()
        self._router = EventRouter()
        self._outbox: deque[tuple[str, EngineEvent]] = deque()
        self._listener = control.listen(folder)
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
            speaker.join(_HELLO_SECONDS)
            self._socket.close()
            self._context.term()
            self._listener.close()

    def stop(self) -> None:
        """Ends `serve`; may be called from a signal handler, and again."""
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
                continue
            if item is None:
                continue
            core = core or self._get_core()
            self._carry_out(core, item)

    def _carry_out(self, core: EngineCore, item: _FrontCommand) -> None:
        if item.command is None:
            for command in self._router.end_front(item.front_id):
                core.handle(command)
            return
        self._router.note(item.front_id, item.command)
        event = core.handle(item.command)
        if event is not None:
            self._emit(event, sender=item.front_id)

    def _emit(self, event: EngineEvent, *, sender: str | None = None) -> None:
        self._outbox.extend(self._router.split(event, sender=sender).items())
        self._wake()

    def _wake(self) -> None:
        try:
            self._wake_writer.send(b"\0", socket.MSG_DONTWAIT)
        except BlockingIOError:
            pass  # it is awake already
        except OSError:
            logger.debug("The speaking thread is gone")

    def _speak(self) -> None:
        """Waits on all sockets; the one thread that touches them."""
        try:
            with selectors.DefaultSelector() as selector:
                selector.register(self._listener, selectors.EVENT_READ)
                selector.register(self._wake_reader, selectors.EVENT_READ)
                selector.register(cast("int", self._socket.get(zmq.FD)), selectors.EVENT_READ)
                while not self._stopping.is_set():
                    self._drain_messages()
                    self._send_outbox()
                    self._drain_messages()  # sending may have taken the edge that the descriptor signals
                    for key, _ in selector.select(timeout=1.0):
                        self._on_readable(key.fileobj, selector)
        except Exception:
            logger.exception("The thread that speaks with front ends failed")
            self.stop()

    def _on_readable(self, source: object, selector: selectors.BaseSelector) -> None:
        if source is self._listener:
            self._meet(selector)
        elif source is self._wake_reader:
            self._wake_reader.recv(4096)
        elif isinstance(source, socket.socket) and source.fileno() in self._fronts and control.has_ended(source):
            connection, front_id = self._fronts.pop(source.fileno())
            selector.unregister(connection)
            connection.close()
            logger.info("The front end %s is gone", front_id)
            self._commands.put(_FrontCommand(front_id, None))
            if not self._fronts:
                self.stop()

    def _meet(self, selector: selectors.BaseSelector) -> None:
        """Takes a front end in, or tells it why not."""
        connection, _ = self._listener.accept()
        connection.settimeout(_HELLO_SECONDS)
        try:
            hello = control.receive(connection, control.Hello)
            with receive_export(connection) as export:
                try:
                    self._admit(hello, export)
                except InsetError as error:
                    control.send(connection, control.Reply(error.message))
                    raise
            control.send(connection, control.Reply())
        except (OSError, InsetError) as error:
            logger.warning("A front end was not admitted: %s", error)
            connection.close()
            return
        connection.setblocking(False)
        self._fronts[connection.fileno()] = (connection, hello.front_id)
        selector.register(connection, selectors.EVENT_READ)

    def _drain_messages(self) -> None:
        while True:
            try:
                front_id, *frames = self._socket.recv_multipart(zmq.NOBLOCK, copy=False)
            except zmq.Again:
                return
            command = decode_frames([frame.buffer for frame in frames])
            self._commands.put(_FrontCommand(bytes(front_id.buffer).decode(), command))

    def _send_outbox(self) -> None:
        while self._outbox:
            front_id, event = self._outbox.popleft()
            try:
                self._socket.send_multipart([front_id.encode(), *encode_frames(event)], zmq.NOBLOCK, copy=False)
            except zmq.ZMQError as error:
                logger.info("The front end %s cannot be reached: %s", front_id, error)
