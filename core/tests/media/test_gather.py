"""Several things of one request at a time."""

from __future__ import annotations

import asyncio

import pytest

from inset.media.gather import MAX_AT_ONCE, gather_or_cancel

WAIT_SECONDS = 20.0


def test_few_run_at_a_time_and_the_results_keep_their_order() -> None:
    running: set[int] = set()
    most = 0

    async def work(number: int) -> int:
        nonlocal most
        running.add(number)
        most = max(most, len(running))
        await asyncio.sleep(0)
        running.remove(number)
        return number

    async def scenario() -> list[int]:
        return await asyncio.wait_for(gather_or_cancel(work(number) for number in range(100)), WAIT_SECONDS)

    assert asyncio.run(scenario()) == list(range(100))
    assert most == MAX_AT_ONCE


def test_a_failure_cancels_what_runs_and_starts_nothing_more() -> None:
    started: list[int] = []
    cancelled: list[int] = []

    async def work(number: int) -> None:
        started.append(number)
        if number == 3:
            raise ZeroDivisionError
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            cancelled.append(number)
            raise

    async def scenario() -> None:
        with pytest.raises(ZeroDivisionError):
            await asyncio.wait_for(gather_or_cancel(work(number) for number in range(100)), WAIT_SECONDS)

    asyncio.run(scenario())
    assert len(started) <= MAX_AT_ONCE + 1
    assert sorted([*cancelled, 3]) == sorted(started)
