"""Several front ends on one port: their processes, started, watched, started again, and ended together."""

from __future__ import annotations

import contextlib
import logging
import os
import selectors
import subprocess
import sys
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Self

import msgspec

from inset.engine.process.launcher import options_of
from inset.errors import ConfigError
from inset.server.restarts import RestartPolicy

if TYPE_CHECKING:
    import socket

    from inset.config import Configs
    from inset.engine.process.launcher import EngineProcess

__all__ = ["READY", "FrontProcesses"]

logger = logging.getLogger(__name__)

READY: Final = b"ready\n"
"""What a front end tells its parent once it accepts connections; any other line says in JSON why it never will."""

_READY_SECONDS: Final = 660.0
_WATCH_SECONDS: Final = 1.0
_STOP_SECONDS: Final = 10.0


@dataclass(frozen=True, slots=True)
class _Front:
    """One process; `number` says which of the front ends it is, however often that was started again."""

    number: int
    front_id: str
    process: subprocess.Popen[bytes]
    started_seconds: float

    def read_line(self) -> bytes:
        """Returns what it says next, or nothing where it has ended."""
        assert self.process.stdout is not None
        return self.process.stdout.readline()

    def wait(self, seconds: float) -> None:
        """Waits for its end, ends it where that takes too long, and closes its pipes."""
        try:
            self.process.wait(max(0.0, seconds))
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
        for pipe in (self.process.stdin, self.process.stdout):
            if pipe is not None:
                with contextlib.suppress(BrokenPipeError):
                    pipe.close()


class FrontProcesses:
    """The front ends of one engine core; whoever makes them closes them.

    Args:
        configs: All options; ``api_server_count`` says how many.
        engine: What they work with; it listens already, and outlives them.
        bound: The socket that all of them accept connections from.
        log_level: Of their logs.
    """

    def __init__(self, configs: Configs, engine: EngineProcess, bound: socket.socket, *, log_level: str) -> None:
        self._configs = configs
        self._engine = engine
        self._bound = bound
        self._log_level = log_level
        self._counters = engine.folder / "metrics"
        self._counters.mkdir()
        self._num_started = 0
        self._fronts: list[_Front] = []
        self._selector = selectors.DefaultSelector()
        for number in range(configs.server.api_server_count):
            self._start(number)

    def _start(self, number: int, *, is_restart: bool = False) -> None:
        front_id = f"front-{number}" + (f".{self._num_started}" if is_restart else "")
        self._num_started += 1
        process = subprocess.Popen(
            [sys.executable, "-m", "inset.server.front_main"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            pass_fds=(self._bound.fileno(),),
            env={**os.environ, "PROMETHEUS_MULTIPROC_DIR": str(self._counters)},
        )
        front = _Front(number, front_id, process, time.monotonic())
        self._fronts.append(front)
        assert process.stdin is not None
        assert process.stdout is not None
        self._selector.register(process.stdout, selectors.EVENT_READ, front)
        start = {
            "folder": str(self._engine.folder),
            "options": options_of(self._configs),
            "log_level": self._log_level,
            "front_id": front_id,
            "is_restart": is_restart,
            "descriptor": self._bound.fileno(),
        }
        with contextlib.suppress(BrokenPipeError):  # it has ended, which is noticed where it is waited for
            process.stdin.write(msgspec.json.encode(start) + b"\n")
            process.stdin.flush()

    def wait_until_ready(self) -> None:
        """Waits until every front end accepts connections.

        Raises:
            ConfigError: One has ended, or was not ready in time; the message says why where it does.
        """
        deadline = time.monotonic() + _READY_SECONDS
        waiting = {front.front_id for front in self._fronts}
        while waiting:
            ready = self._selector.select(max(0.0, deadline - time.monotonic()))
            if not ready:
                raise ConfigError(f"The front ends were not ready within {_READY_SECONDS:.0f} seconds.")
            for key, _ in ready:
                line = key.data.read_line()
                if line != READY:
                    raise ConfigError(_reason(line) or f"The front end {key.data.front_id} ended before it was ready; its log says why.")
                waiting.discard(key.data.front_id)

    def watch(self) -> int:
        """Starts front ends that end again, and returns the exit status once none is left: each ends at once, or the engine core has.

        Each end is told in the log, and the others go on.
        """
        policy, is_told = RestartPolicy(), False
        while self._fronts or policy.is_waiting:
            for key, _ in self._selector.select(policy.seconds_until_next(_WATCH_SECONDS)):
                self._listen(key.data, policy)
            if not is_told and not self._engine.is_running:
                is_told = True
                logger.error("The engine core has ended; the front ends answer 503 until the server is restarted")
            for number in policy.take_due():
                if self._engine.is_running:
                    self._start(number, is_restart=True)
        return 1

    def _listen(self, front: _Front, policy: RestartPolicy) -> None:
        """Takes what a front end says after the start: that it is ready, why it is not, or nothing any more."""
        line = front.read_line()
        if line == READY:
            logger.warning("The front end %s has taken its place", front.front_id)
            return
        assert front.process.stdout is not None
        self._selector.unregister(front.process.stdout)
        front.wait(_STOP_SECONDS)
        self._fronts.remove(front)
        status, reason = front.process.returncode, _reason(line)
        said = f": {reason}" if reason else ""
        logger.error("The front end %s has ended with status %s; %d are left%s", front.front_id, status, len(self._fronts), said)
        lived_seconds = time.monotonic() - front.started_seconds
        if self._engine.is_running and not policy.note_end(front.number, lived_seconds=lived_seconds):
            logger.error("Front end %d ends soon after each start, and is not started again", front.number)

    def close(self) -> None:
        """Lets all of them drain, and ends those that do not; idempotent."""
        for front in self._fronts:
            if front.process.poll() is None:
                front.process.terminate()
        deadline = time.monotonic() + self._configs.server.drain_timeout_seconds + _STOP_SECONDS
        while self._fronts:
            self._fronts.pop().wait(deadline - time.monotonic())
        self._selector.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc_info: object) -> None:
        self.close()


def _reason(line: bytes) -> str:
    """Returns why a front end ended, as far as it has said so."""
    try:
        return msgspec.json.decode(line, type=str)
    except msgspec.MsgspecError:
        return ""
