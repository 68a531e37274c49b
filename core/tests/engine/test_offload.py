"""A cancelled caller leaves no work behind."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest

from inset.engine.offload import run_in_thread


@pytest.fixture
def executor() -> Iterator[ThreadPoolExecutor]:
    with ThreadPoolExecutor(2) as pool:
        yield pool


def test_result_and_error_of_the_work_are_the_callers(executor: ThreadPoolExecutor) -> None:
    assert asyncio.run(run_in_thread(executor, lambda: 7)) == 7
    with pytest.raises(ZeroDivisionError):
        asyncio.run(run_in_thread(executor, lambda: 1 // 0))


@pytest.mark.parametrize("num_cancellations", [1, 3])
def test_cancelled_caller_waits_for_the_work_and_undoes_its_result(executor: ThreadPoolExecutor, num_cancellations: int) -> None:
    started, may_end = threading.Event(), threading.Event()
    undone: list[str] = []

    def work() -> str:
        started.set()
        assert may_end.wait(10)
        return "held"

    async def run() -> None:
        task = asyncio.create_task(run_in_thread(executor, work, undo=undone.append))
        await asyncio.to_thread(started.wait, 10)
        for _ in range(num_cancellations):
            task.cancel()
            await asyncio.sleep(0)
            await asyncio.sleep(0)
        assert not task.done()
        assert undone == []
        may_end.set()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert undone == ["held"]

    asyncio.run(run())


def test_cancelled_caller_of_failing_work_is_cancelled_and_undoes_nothing(executor: ThreadPoolExecutor) -> None:
    started, may_end = threading.Event(), threading.Event()
    undone: list[None] = []

    def work() -> None:
        started.set()
        assert may_end.wait(10)
        raise ValueError("too late")

    async def run() -> None:
        task = asyncio.create_task(run_in_thread(executor, work, undo=undone.append))
        await asyncio.to_thread(started.wait, 10)
        task.cancel()
        may_end.set()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert undone == []

    asyncio.run(run())
