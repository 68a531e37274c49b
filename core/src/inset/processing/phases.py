"""Runs a phase of processing in a thread, for callers on an event loop that may be cancelled at any moment."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import Executor, Future
from typing import Any, TypeVar

__all__ = ["run_phase"]

T = TypeVar("T")


async def run_phase(threads: Executor, phase: Callable[[], T], *, undo: Callable[[T], None]) -> T:
    """Returns what a phase returns. A caller that is cancelled waits for a phase that runs, has its result undone, then is cancelled.

    A thread cannot be stopped, and what it makes (a state with pins and references, a commit) would otherwise belong to nobody.

    Args:
        threads: Where it runs.
        phase: Such as ``partial(processor.apply_phase1, inputs)``.
        undo: Called in a thread with the result that nobody waits for any more, such as `MultiModalApplyState.close`.

    Raises:
        Exception: What the phase raises.
    """
    job = threads.submit(phase)
    cancellation = await _outlast(job)
    if cancellation is None:
        return job.result()
    if not job.cancelled() and job.exception() is None:
        await _outlast(threads.submit(undo, job.result()))
    raise cancellation


async def _outlast(job: Future[Any]) -> asyncio.CancelledError | None:
    """Waits until a job has ended, however often the caller is cancelled meanwhile; a job that has not begun is dropped then."""
    waiter = asyncio.wrap_future(job)
    cancellation: asyncio.CancelledError | None = None
    while not waiter.done():
        try:
            await asyncio.wait([waiter])
        except asyncio.CancelledError as error:
            cancellation = error
            job.cancel()
    if not waiter.cancelled():
        waiter.exception()  # marks it as seen: the failure is raised from the job
    return cancellation
