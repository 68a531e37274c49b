"""Runs a phase of processing in a thread, for callers on an event loop that may be cancelled at any moment."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import Executor, Future
from functools import partial
from typing import Any, TypeVar

from inset.errors import OverloadedError

__all__ = ["run_phase", "run_release"]

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
        OverloadedError: The threads are closed, or are closed before the phase has begun.
    """
    job = _submit(threads, phase)
    cancellation = await _outlast(job, may_drop=True)
    if cancellation is not None:
        if not job.cancelled() and job.exception() is None:
            await run_release(threads, partial(undo, job.result()))
        raise cancellation
    if job.cancelled():
        raise _closing()
    return job.result()


async def run_release(threads: Executor, release: Callable[[], None]) -> None:
    """Frees what a request held, in a thread, to the end: a caller that is cancelled waits, also where no thread is free yet.

    Threads that have been closed meanwhile do not keep it from being freed: then it happens here.
    """
    try:
        job = threads.submit(release)
    except RuntimeError:
        release()
        return
    cancellation = await _outlast(job, may_drop=False)
    if job.cancelled():
        release()
    elif cancellation is None:
        job.result()
    if cancellation is not None:
        raise cancellation


def _submit(threads: Executor, phase: Callable[[], T]) -> Future[T]:
    try:
        return threads.submit(phase)
    except RuntimeError as error:
        raise _closing() from error


def _closing() -> OverloadedError:
    return OverloadedError("This core is closing.", stage="queue")


async def _outlast(job: Future[Any], *, may_drop: bool) -> asyncio.CancelledError | None:
    """Waits until a job has ended, however often the caller is cancelled meanwhile; one that has not begun may be dropped then."""
    waiter = asyncio.wrap_future(job)
    cancellation: asyncio.CancelledError | None = None
    while not waiter.done():
        try:
            await asyncio.wait([waiter])
        except asyncio.CancelledError as error:
            cancellation = error
            if may_drop:
                job.cancel()
    if not waiter.cancelled():
        waiter.exception()  # marks it as seen: the failure is raised from the job
    return cancellation
