"""The way to the engine core, the same for a thread of this process and for a process of its own."""

from __future__ import annotations

import logging
import queue
import threading
from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import TYPE_CHECKING

from inset.errors import EngineDeadError

if TYPE_CHECKING:
    from inset.engine.engine_core import EngineCore
    from inset.engine.messages import EngineCommand, EngineEvent, EngineStats

__all__ = ["CoreClient", "EngineListener", "InProcessClient"]

logger = logging.getLogger(__name__)

_JOIN_SECONDS = 30.0


class EngineListener(ABC):
    """Hears what the engine core says; called from the client's own thread, so it only hands things on."""

    @abstractmethod
    def on_event(self, event: EngineEvent) -> None:
        """Takes one event."""

    @abstractmethod
    def on_stats(self, stats: EngineStats) -> None:
        """Takes the engine core's state of now, whoever it works for."""

    @abstractmethod
    def on_death(self, error: EngineDeadError) -> None:
        """Takes the end of the engine core; called once, and no event follows."""


class CoreClient(ABC):
    """Sends commands in order and hands events to a listener."""

    @abstractmethod
    def start(self, listener: EngineListener) -> None:
        """Begins to hand events on; called once."""

    @abstractmethod
    def send(self, command: EngineCommand) -> None:
        """Hands a command over without waiting; commands arrive in the order of the calls. Thread-safe.

        Raises:
            EngineDeadError: The engine core is gone.
            OverloadedError: Requests alone: too much is on its way already.
        """

    @property
    @abstractmethod
    def is_alive(self) -> bool:
        """The engine core answers."""

    @property
    def seconds_silent(self) -> float:
        """Seconds since the engine core last gave a sign of life; 0 where it runs in this process, whose own life is that sign."""
        return 0.0

    @abstractmethod
    def close(self) -> None:
        """Ends the engine core and waits for it, within a limit; idempotent."""


class InProcessClient(CoreClient):
    """The engine core in a thread of this process.

    `prepare` runs first in that thread, for what belongs to it, such as its number of torch threads.
    """

    def __init__(self, core: EngineCore, *, prepare: Callable[[], None] = lambda: None) -> None:
        self._core = core
        self._prepare = prepare
        self._commands: queue.SimpleQueue[EngineCommand | None] = queue.SimpleQueue()
        self._thread: threading.Thread | None = None
        self._dead: EngineDeadError | None = None
        self._closed = False

    @property
    def core(self) -> EngineCore:
        """The engine core; it belongs to its thread, so others only look."""
        return self._core

    def start(self, listener: EngineListener) -> None:
        self._thread = threading.Thread(target=self._run, args=(listener,), name="inset-engine-core", daemon=True)
        self._thread.start()

    def send(self, command: EngineCommand) -> None:
        if self._dead is not None or self._closed:
            raise EngineDeadError("The engine core is closed." if self._dead is None else self._dead.message)
        self._commands.put(command)

    @property
    def is_alive(self) -> bool:
        return self._dead is None and not self._closed

    def close(self) -> None:
        if self._closed:
            return
        self._closed = True
        self._commands.put(None)
        if self._thread is None:
            self._core.close()
        else:
            self._thread.join(_JOIN_SECONDS)

    def _run(self, listener: EngineListener) -> None:
        try:
            self._prepare()
            self._loop(listener)
        except Exception as error:
            logger.exception("The engine core failed")
            self._dead = EngineDeadError(f"The engine core failed: {type(error).__name__}. Restart it; the log has the details.")
            listener.on_death(self._dead)
        finally:
            self._core.close()

    def _loop(self, listener: EngineListener) -> None:
        while True:
            try:
                command = self._commands.get(block=not self._core.has_work)
            except queue.Empty:
                listener.on_event(self._core.step())
                continue
            if command is None:
                return
            event = self._core.handle(command)
            if event is not None:
                listener.on_event(event)
