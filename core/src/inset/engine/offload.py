"""Work in threads for coroutines that may be cancelled at any time."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import Executor
from contextlib import suppress
from typing import Any, TypeVar

__all__ = ["run_in_thread"]

T = TypeVar("T")


async def run_in_thread(executor: Executor, work: Callable[[], T], *, undo: Callable[[T], None] | None = None) -> T:
    """Runs work in a thread and returns its result.

    A caller that is cancelled, however often, still waits until the work has ended and its result is undone; only then is it cancelled.
    Work that went on behind a cancelled request would use what the request frees, or keep what nobody frees.

    Args:
        executor: Runs the work, and what undoes it.
        work: Raises what it likes.
        undo: Frees a result that nobody takes any more.
    """
    loop = asyncio.get_running_loop()
    future = loop.run_in_executor(executor, work)
    try:
        return await asyncio.shield(future)
    except asyncio.CancelledError:
        await _wait_through_cancellation(future)
        if undo is not None and not future.cancelled() and future.exception() is None:
            await _wait_through_cancellation(loop.run_in_executor(executor, undo, future.result()))
        raise


async def _wait_through_cancellation(future: asyncio.Future[Any]) -> None:
    while not future.done():
        with suppress(asyncio.CancelledError):
            await asyncio.wait([future])
    if not future.cancelled():
        future.exception()  # looked at here, because the caller is being cancelled
