from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any

import pytest

from inset.errors import MediaFetchError, TooLargeError
from inset.media.gather import gather_or_cancel
from inset.media.single_flight import Meter, SingleFlight
from inset.testing.conformance.connector import make_budget


class Fetch:
    """A fetch that goes on when it is told to, and counts how often it began and was cancelled."""

    def __init__(self) -> None:
        self.num_begun = 0
        self.num_cancelled = 0
        self.steps: asyncio.Queue[int | Exception | None] = asyncio.Queue()

    async def __call__(self, on_progress: Callable[[int], None]) -> str:
        self.num_begun += 1
        try:
            while (step := await self.steps.get()) is not None:
                if isinstance(step, Exception):
                    raise step
                on_progress(step)
        except asyncio.CancelledError:
            self.num_cancelled += 1
            raise
        return "fetched"


def run(work: Callable[[SingleFlight[str], Fetch], Coroutine[Any, Any, None]]) -> None:
    async def main() -> None:
        async with asyncio.timeout(20):
            await work(SingleFlight(), Fetch())

    asyncio.run(main())


async def settle() -> None:
    for _ in range(5):
        await asyncio.sleep(0)


def start(work: Awaitable[str]) -> asyncio.Future[str]:
    return asyncio.ensure_future(work)


def test_equal_keys_share_and_other_keys_do_not() -> None:
    async def work(flights: SingleFlight[str], fetch: Fetch) -> None:
        waiting = [start(flights.join(key, fetch)) for key in ("a", "a", "b")]
        await settle()
        assert (fetch.num_begun, flights.num_waiting, flights.is_flying("a")) == (2, 3, True)
        for _ in range(2):
            fetch.steps.put_nowait(None)
        assert await asyncio.gather(*waiting) == ["fetched"] * 3
        await settle()
        assert (flights.num_waiting, flights.is_flying("a")) == (0, False)

    run(work)


def test_flight_that_has_ended_is_not_joined() -> None:
    async def work(flights: SingleFlight[str], fetch: Fetch) -> None:
        for number in (1, 2):
            fetch.steps.put_nowait(None)
            assert await flights.join("a", fetch) == "fetched"
            assert fetch.num_begun == number

    run(work)


def test_who_comes_while_a_flight_is_being_cancelled_starts_anew() -> None:
    async def work(flights: SingleFlight[str], fetch: Fetch) -> None:
        first = start(flights.join("a", fetch))
        await settle()
        first.cancel()
        await asyncio.sleep(0)
        second = start(flights.join("a", fetch))
        await settle()
        fetch.steps.put_nowait(None)
        assert await second == "fetched"
        assert (fetch.num_begun, fetch.num_cancelled) == (2, 1)

    run(work)


def test_each_caller_gets_an_error_of_his_own() -> None:
    async def work(flights: SingleFlight[str], fetch: Fetch) -> None:
        cause = OSError("why")
        error = MediaFetchError("not fetched")
        error.__cause__ = cause
        waiting = [start(flights.join("a", fetch)) for _ in range(2)]
        await settle()
        fetch.steps.put_nowait(error)
        first, second = await asyncio.gather(*waiting, return_exceptions=True)
        assert isinstance(first, MediaFetchError)
        assert isinstance(second, MediaFetchError)
        first.locate(item_index=3, modality="image")
        assert second.item_index is None
        assert first.__cause__ is second.__cause__ is cause

    run(work)


def test_bytes_count_up_to_the_highest_mark_for_each_caller() -> None:
    async def work(flights: SingleFlight[str], fetch: Fetch) -> None:
        early, late = make_budget(), make_budget()
        first = start(flights.join("a", fetch, meter=Meter(early)))
        for num_bytes in (100, 700, 50, 300):  # the second attempt begins again
            fetch.steps.put_nowait(num_bytes)
        await settle()
        second = start(flights.join("a", fetch, meter=Meter(late)))
        await settle()
        assert late.downloaded_bytes == 700
        for step in (900, None):
            fetch.steps.put_nowait(step)
        await asyncio.gather(first, second)
        assert (early.downloaded_bytes, late.downloaded_bytes) == (900, 900)

    run(work)


def test_last_caller_whose_budget_is_spent_ends_the_flight() -> None:
    async def work(flights: SingleFlight[str], fetch: Fetch) -> None:
        waiting = [start(flights.join("a", fetch, meter=Meter(make_budget(limit)))) for limit in (10, 20)]
        await settle()
        for num_bytes, is_over in ((10, [False, False]), (15, [True, False]), (25, [True, True])):
            fetch.steps.put_nowait(num_bytes)
            await settle()
            assert [future.done() for future in waiting] == is_over
        assert all(isinstance(error, TooLargeError) for error in await asyncio.gather(*waiting, return_exceptions=True))
        await settle()
        assert fetch.num_cancelled == 1

    run(work)


def test_caller_who_is_over_his_budget_at_once_leaves_at_once() -> None:
    async def work(flights: SingleFlight[str], fetch: Fetch) -> None:
        first = start(flights.join("a", fetch))
        await settle()
        fetch.steps.put_nowait(100)
        await settle()
        with pytest.raises(TooLargeError):
            await flights.join("a", fetch, meter=Meter(make_budget(99)))
        fetch.steps.put_nowait(None)
        assert await first == "fetched"

    run(work)


def test_first_failure_cancels_the_others_and_is_raised_as_it_is() -> None:
    async def main() -> list[str]:
        ended: list[str] = []

        async def wait() -> None:
            try:
                await asyncio.Event().wait()
            finally:
                await asyncio.sleep(0)
                ended.append("cancelled")

        async def fail() -> None:
            await asyncio.sleep(0)
            raise MediaFetchError("first")

        with pytest.raises(MediaFetchError, match="first"):
            await gather_or_cancel([wait(), fail(), wait()])
        return ended

    assert asyncio.run(main()) == ["cancelled", "cancelled"]


def test_nothing_to_wait_for_is_done_at_once() -> None:
    assert asyncio.run(gather_or_cancel([])) == []


def test_caller_who_joins_a_second_flight_for_the_same_item_pays_once() -> None:
    async def work(flights: SingleFlight[str], fetch: Fetch) -> None:
        budget = make_budget()
        meter = Meter(budget)
        for steps in ((100, MediaFetchError("no")), (70, 130, None)):
            waiting = start(flights.join("a", fetch, meter=meter))
            for step in steps:
                fetch.steps.put_nowait(step)
            await asyncio.gather(waiting, return_exceptions=True)
        assert budget.downloaded_bytes == 130

    run(work)
