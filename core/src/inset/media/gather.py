"""Waits for several things of one request; the first that fails cancels the others."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine, Iterable
from typing import Any, Final, TypeVar

__all__ = ["MAX_AT_ONCE", "gather_or_cancel"]

T = TypeVar("T")

MAX_AT_ONCE: Final = 16
"""So many items of one request are under way at a time: no request takes all connections, however many silent servers it names."""


async def gather_or_cancel(works: Iterable[Coroutine[Any, Any, T]]) -> list[T]:
    """Returns the results in order; the works start in that order, `MAX_AT_ONCE` of them at a time.

    On the first failure, or when the caller is cancelled, the others are cancelled and waited for; then that failure is raised as it is.
    """
    works = list(works)
    slots = asyncio.Semaphore(MAX_AT_ONCE)

    async def run(work: Coroutine[Any, Any, T]) -> T:
        async with slots:
            return await work

    tasks = [asyncio.ensure_future(run(work)) for work in works]
    try:
        return await asyncio.gather(*tasks)
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        for work in works:
            work.close()  # one that never started would warn that nobody awaited it
