"""`inset serve` in a process of its own, for as long as somebody asks it."""

from __future__ import annotations

import queue
import re
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from types import TracebackType
from typing import Final, Self

__all__ = ["ENDING_SIGNALS", "NotServedError", "ServeProcess"]

READY_SECONDS: Final = 180.0
"""The first start of a new environment compiles every module that it imports."""

END_SECONDS: Final = 30.0
ENDING_SIGNALS: Final = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
GONE_SECONDS: Final = 2.0
"""A server's connections close a little before its process has ended."""


@contextmanager
def _held_signals() -> Iterator[Callable[[], None]]:
    """Holds back the signals that end this process while a child is made that nobody could end yet; gives what lets them through."""
    held: list[int] = []
    handlers = {number: signal.signal(number, lambda number, _: held.append(number)) for number in ENDING_SIGNALS}

    def release() -> None:
        for number, handler in handlers.items():
            signal.signal(number, handler)
        handlers.clear()
        while held:
            signal.raise_signal(held.pop())

    try:
        yield release
    finally:
        release()


class NotServedError(Exception):
    """The server did not come up, or has gone; the message is one line."""


class ServeProcess:
    """A running `inset serve` on a free port of this machine; leaving its context ends it, whatever happened. The main thread makes it.

    Args:
        model: What to serve.
        ready_seconds: How long it may take until it answers.

    Attributes:
        base_url: What an OpenAI client takes.

    Raises:
        NotServedError: It ended, or was not ready in time.
    """

    def __init__(self, model: str, *, ready_seconds: float = READY_SECONDS) -> None:
        command = [sys.executable, "-m", "inset", "serve", model, "--host", "127.0.0.1", "--port", "0"]
        self._lines: queue.SimpleQueue[str | None] = queue.SimpleQueue()
        self._last = "it said nothing"
        self._reader = threading.Thread(target=self._read, name="inset-serve-log", daemon=True)
        with _held_signals() as release:
            # A group of its own: Ctrl-C in a terminal reaches the one who asks, who then ends the server in order.
            self._process = subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.PIPE,
                text=True,
                errors="replace",
                process_group=0,
            )
            self._reader.start()
            try:
                release()
                self.base_url: Final = self._wait_until_ready(ready_seconds)
            except BaseException:
                self.end()
                raise

    def _read(self) -> None:
        assert self._process.stderr is not None
        with self._process.stderr as lines:
            for line in lines:
                self._last = line.strip() or self._last
                self._lines.put(line)
        self._lines.put(None)

    def _wait_until_ready(self, seconds: float) -> str:
        deadline = time.monotonic() + seconds
        while True:
            try:
                line = self._lines.get(timeout=max(0.0, deadline - time.monotonic()))
            except queue.Empty:
                raise NotServedError(f"inset serve was not ready within {seconds:g} s; its last line: {self._last}") from None
            if line is None:
                raise NotServedError(f"inset serve ended before it was ready: {self._last}")
            if ready := re.search(r"is ready at (http://\S+)", line):
                return ready[1]

    def check(self) -> None:
        """Returns if the server still runs although a connection to it broke.

        Raises:
            NotServedError: It has ended; the message carries the last line that it wrote.
        """
        with suppress(subprocess.TimeoutExpired):
            status = self._process.wait(GONE_SECONDS)
            self._reader.join(END_SECONDS)
            raise NotServedError(f"inset serve has gone (status {status}); its last line: {self._last}")

    def end(self) -> None:
        """Ends the server in order, and by force where that takes too long or is interrupted."""
        self._process.terminate()
        try:
            with suppress(subprocess.TimeoutExpired):
                self._process.wait(END_SECONDS)
        finally:
            self._process.kill()
            self._process.wait(END_SECONDS)
        self._reader.join(END_SECONDS)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.end()
