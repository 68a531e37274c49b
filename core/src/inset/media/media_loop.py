"""The one event loop on which all connectors of a core live, in a thread of its own."""

from __future__ import annotations

import asyncio
import concurrent.futures
import os
import threading
from collections.abc import Callable, Coroutine
from contextlib import suppress
from typing import Any, Final, TypeVar

from inset.errors import InvariantError

__all__ = ["MediaLoop"]

T = TypeVar("T")

CLOSE_SECONDS: Final = 10.0


class MediaLoop:
    """Runs coroutines for callers of any thread and any loop; its thread starts with the first one."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread: threading.Thread | None = None
        self._pid: int | None = None
        self._is_closed = False

    def submit(self, work: Coroutine[Any, Any, T]) -> concurrent.futures.Future[T]:
        """Starts a coroutine on the loop; cancelling the future cancels it.

        Raises:
            InvariantError: The loop is closed.
        """
        try:
            return asyncio.run_coroutine_threadsafe(work, self._start())
        except BaseException:
            work.close()
            raise

    def is_current(self) -> bool:
        """Tells whether the caller runs on this loop's thread, where waiting for it would never end."""
        return threading.current_thread() is self._thread

    def close(self, finish: Callable[[], Coroutine[Any, Any, None]]) -> None:
        """Cancels what still runs, awaits `finish` and ends the thread; may be called again."""
        with self._lock:
            self._is_closed = True
            loop, thread, self._loop = self._loop, self._thread, None
        if loop is None or thread is None:
            return
        # What does not let itself be cancelled is left behind with the daemon thread.
        with suppress(concurrent.futures.TimeoutError):
            asyncio.run_coroutine_threadsafe(_finish(finish), loop).result(CLOSE_SECONDS)
        loop.call_soon_threadsafe(loop.stop)
        thread.join(CLOSE_SECONDS)

    def _start(self) -> asyncio.AbstractEventLoop:
        with self._lock:
            if self._is_closed:
                raise InvariantError("The media loop is closed.")
            if self._pid not in (None, os.getpid()):
                raise InvariantError("The media loop belongs to the parent process: make a fetcher after the fork.")
            if self._loop is None:
                self._pid = os.getpid()
                self._loop = asyncio.new_event_loop()
                self._thread = threading.Thread(target=_run, args=(self._loop,), name="inset-media-loop", daemon=True)
                self._thread.start()
            return self._loop


def _run(loop: asyncio.AbstractEventLoop) -> None:
    asyncio.set_event_loop(loop)
    try:
        loop.run_forever()
        loop.run_until_complete(loop.shutdown_asyncgens())
        loop.run_until_complete(loop.shutdown_default_executor())
    finally:
        loop.close()


async def _finish(finish: Callable[[], Coroutine[Any, Any, None]]) -> None:
    others = asyncio.all_tasks() - {asyncio.current_task()}
    for task in others:
        task.cancel()
    await asyncio.gather(*others, return_exceptions=True)
    await finish()
