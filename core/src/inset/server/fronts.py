"""Several front ends on one port: their processes, started, watched and ended together."""

from __future__ import annotations

import contextlib
import logging
import os
import selectors
import subprocess
import sys
import time
from typing import TYPE_CHECKING, Final, Self

import msgspec

from inset.engine.process.launcher import options_of
from inset.errors import ConfigError

if TYPE_CHECKING:
    import socket

    from inset.config import Configs
    from inset.engine.process.launcher import EngineProcess

__all__ = ["FrontProcesses"]

logger = logging.getLogger(__name__)

_READY_SECONDS: Final = 660.0
_WATCH_SECONDS: Final = 1.0
_STOP_SECONDS: Final = 10.0


class FrontProcesses:
    """The front ends of one engine core; whoever makes them closes them.

    Args:
        configs: All options; ``api_server_count`` says how many.
        engine: What they work with; it listens already.
        bound: The socket that all of them accept connections from.
        log_level: Of their logs.
    """

    def __init__(self, configs: Configs, engine: EngineProcess, bound: socket.socket, *, log_level: str) -> None:
        self._engine = engine
        self._drain_seconds = configs.server.drain_timeout_seconds
        self._counters = engine.folder / "metrics"
        self._counters.mkdir()
        self._processes: dict[str, subprocess.Popen[bytes]] = {}
        for number in range(configs.server.api_server_count):
            self._start(f"front-{number}", configs, bound, log_level)

    def _start(self, front_id: str, configs: Configs, bound: socket.socket, log_level: str) -> None:
        process = subprocess.Popen(
            [sys.executable, "-m", "inset.server.front_main"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            pass_fds=(bound.fileno(),),
            env={**os.environ, "PROMETHEUS_MULTIPROC_DIR": str(self._counters)},
        )
        self._processes[front_id] = process
        start = {
            "folder": str(self._engine.folder),
            "options": options_of(configs),
            "log_level": log_level,
            "front_id": front_id,
            "descriptor": bound.fileno(),
        }
        assert process.stdin is not None
        with contextlib.suppress(BrokenPipeError):  # it has ended; its end is noticed below
            process.stdin.write(msgspec.json.encode(start) + b"\n")
            process.stdin.flush()

    @property
    def pids(self) -> dict[str, int]:
        """Front end -> its process id."""
        return {front_id: process.pid for front_id, process in self._processes.items()}

    def wait_until_ready(self) -> None:
        """Waits until every front end accepts connections.

        Raises:
            ConfigError: One has ended, or was not ready in time; its log says why.
        """
        deadline = time.monotonic() + _READY_SECONDS
        with self._selector() as selector:
            while selector.get_map():
                ready = selector.select(max(0.0, deadline - time.monotonic()))
                if not ready:
                    raise ConfigError(f"The front ends were not ready within {_READY_SECONDS:.0f} seconds.")
                for key, _ in ready:
                    assert self._processes[key.data].stdout is not None
                    if not self._processes[key.data].stdout.readline():  # type: ignore[union-attr]
                        raise ConfigError(f"The front end {key.data} ended before it was ready; its log says why.")
                    selector.unregister(key.fileobj)

    def watch(self) -> int:
        """Waits until the last front end has ended, and returns the exit status; each end is told in the log, and the others go on."""
        is_told = False
        with self._selector() as selector:
            while selector.get_map():
                for key, _ in selector.select(_WATCH_SECONDS):
                    selector.unregister(key.fileobj)
                    status = self._processes[key.data].wait()
                    logger.error("The front end %s has ended with status %s; %d are left", key.data, status, len(selector.get_map()))
                if not is_told and not self._engine.is_running:
                    is_told = True
                    logger.error("The engine core has ended; the front ends answer 503 until the server is restarted")
        return 1

    def _selector(self) -> selectors.DefaultSelector:
        selector = selectors.DefaultSelector()
        for front_id, process in self._processes.items():
            assert process.stdout is not None
            selector.register(process.stdout, selectors.EVENT_READ, front_id)
        return selector

    def close(self) -> None:
        """Lets all of them drain, and ends those that do not; idempotent."""
        for process in self._processes.values():
            if process.poll() is None:
                process.terminate()
        deadline = time.monotonic() + self._drain_seconds + _STOP_SECONDS
        for process in self._processes.values():
            try:
                process.wait(max(0.0, deadline - time.monotonic()))
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
            for pipe in (process.stdin, process.stdout):
                if pipe is not None:
                    pipe.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc_info: object) -> None:
        self.close()
