"""Tests of phases that run in threads while their callers are cancelled."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest

from inset.errors import OverloadedError
from inset.processing.phases import run_phase, run_release

TIME_LIMIT_SECONDS = 30.0


@pytest.fixture
def threads() -> Iterator[ThreadPoolExecutor]:
    with ThreadPoolExecutor(1) as executor:
        yield executor


class Phase:
    """A phase that can be held, and that counts what is undone."""

    def __init__(self) -> None:
        self.entered = threading.Event()
        self.may_go_on = threading.Event()
        self.undone: list[int] = []

    def __call__(self) -> int:
        self.entered.set()
        assert self.may_go_on.wait(TIME_LIMIT_SECONDS)
        return 7


def test_a_phase_gives_its_result_or_its_error(threads: ThreadPoolExecutor) -> None:
    phase = Phase()
    phase.may_go_on.set()
    assert asyncio.run(run_phase(threads, phase, undo=phase.undone.append)) == 7
    with pytest.raises(ZeroDivisionError):
        asyncio.run(run_phase(threads, lambda: 1 // 0, undo=phase.undone.append))
    assert phase.undone == []


def test_a_cancelled_caller_waits_for_the_phase_and_its_result_is_undone(threads: ThreadPoolExecutor) -> None:
    phase = Phase()

    async def scenario() -> None:
        task = asyncio.ensure_future(run_phase(threads, phase, undo=phase.undone.append))
        assert await asyncio.to_thread(phase.entered.wait, TIME_LIMIT_SECONDS)
        for _ in range(3):
            task.cancel()
            done, _ = await asyncio.wait([task], timeout=0.01)
            assert not done
        phase.may_go_on.set()
        with pytest.raises(asyncio.CancelledError):
            await asyncio.wait_for(task, TIME_LIMIT_SECONDS)

    asyncio.run(scenario())
    assert phase.undone == [7]


def test_a_phase_that_has_not_begun_is_dropped(threads: ThreadPoolExecutor) -> None:
    first, second = Phase(), Phase()

    async def scenario() -> None:
        running = asyncio.ensure_future(run_phase(threads, first, undo=first.undone.append))
        assert await asyncio.to_thread(first.entered.wait, TIME_LIMIT_SECONDS)
        waiting = asyncio.ensure_future(run_phase(threads, second, undo=second.undone.append))
        await asyncio.sleep(0)
        waiting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await asyncio.wait_for(waiting, TIME_LIMIT_SECONDS)
        first.may_go_on.set()
        assert await asyncio.wait_for(running, TIME_LIMIT_SECONDS) == 7

    asyncio.run(scenario())
    assert not second.entered.is_set()


def test_a_phase_that_fails_after_its_caller_was_cancelled_is_not_undone(threads: ThreadPoolExecutor) -> None:
    phase = Phase()

    def fail() -> int:
        phase()
        raise ValueError("too late")

    async def scenario() -> None:
        task = asyncio.ensure_future(run_phase(threads, fail, undo=phase.undone.append))
        assert await asyncio.to_thread(phase.entered.wait, TIME_LIMIT_SECONDS)
        task.cancel()
        phase.may_go_on.set()
        with pytest.raises(asyncio.CancelledError):
            await asyncio.wait_for(task, TIME_LIMIT_SECONDS)

    asyncio.run(scenario())
    assert phase.undone == []


def test_what_frees_something_runs_even_if_it_was_cancelled_in_the_queue(threads: ThreadPoolExecutor) -> None:
    """Both the release of a request, and what undoes a phase."""
    busy, late = Phase(), Phase()
    freed: list[int] = []

    async def scenario() -> None:
        phase = asyncio.ensure_future(run_phase(threads, late, undo=late.undone.append))
        assert await asyncio.to_thread(late.entered.wait, TIME_LIMIT_SECONDS)
        held = threads.submit(busy)  # between the phase and what undoes it
        release = asyncio.ensure_future(run_release(threads, lambda: freed.append(1)))
        phase.cancel()
        late.may_go_on.set()
        assert await asyncio.to_thread(busy.entered.wait, TIME_LIMIT_SECONDS)
        for _ in range(3):
            phase.cancel()
            release.cancel()
            await asyncio.sleep(0)
        busy.may_go_on.set()
        for task in (phase, release):
            with pytest.raises(asyncio.CancelledError):
                await asyncio.wait_for(task, TIME_LIMIT_SECONDS)
        assert held.result(TIME_LIMIT_SECONDS) == 7

    asyncio.run(scenario())
    assert (late.undone, freed) == ([7], [1])


def test_closed_threads_refuse_phases_and_let_go_of_what_is_held(threads: ThreadPoolExecutor) -> None:
    phase = Phase()
    freed: list[int] = []

    async def scenario() -> None:
        running = asyncio.ensure_future(run_phase(threads, phase, undo=phase.undone.append))
        assert await asyncio.to_thread(phase.entered.wait, TIME_LIMIT_SECONDS)
        queued = asyncio.ensure_future(run_phase(threads, lambda: 1, undo=phase.undone.append))
        release = asyncio.ensure_future(run_release(threads, lambda: freed.append(1)))
        await asyncio.sleep(0)
        threads.shutdown(wait=False, cancel_futures=True)
        phase.may_go_on.set()
        assert await asyncio.wait_for(running, TIME_LIMIT_SECONDS) == 7
        await asyncio.wait_for(release, TIME_LIMIT_SECONDS)
        await run_release(threads, lambda: freed.append(2))
        for refused in (queued, run_phase(threads, lambda: 1, undo=phase.undone.append)):
            with pytest.raises(OverloadedError, match="closing"):
                await asyncio.wait_for(refused, TIME_LIMIT_SECONDS)

    asyncio.run(scenario())
    assert freed == [1, 2]
