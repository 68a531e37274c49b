"""Places of fetches: one belongs to each request, the others are shared."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any

from inset.media.fetch_places import MAX_SHARED, MAX_SHARED_PER_HOST, FetchPlaces


class Fetches:
    """Fetches that run until they are told to end."""

    def __init__(self) -> None:
        self.places = FetchPlaces()
        self.running: list[str] = []
        self._ends: dict[str, asyncio.Event] = {}
        self._tasks: dict[str, asyncio.Task[None]] = {}

    async def start(self, owner: str, host: str, name: str = "") -> str:
        name = name or f"{owner}-{len(self._tasks)}"
        self._ends[name] = asyncio.Event()
        self._tasks[name] = asyncio.create_task(self._run(owner, host, name))
        await self._settle()
        return name

    async def end(self, name: str) -> None:
        self._ends[name].set()
        await self._tasks[name]
        await self._settle()

    async def cancel(self, *names: str) -> None:
        for name in names:
            self._tasks[name].cancel()
        await asyncio.gather(*(self._tasks[name] for name in names), return_exceptions=True)
        await self._settle()

    async def _settle(self) -> None:
        for _ in range(3):
            await asyncio.sleep(0)

    async def _run(self, owner: str, host: str, name: str) -> None:
        async with self.places.held(owner, host):
            self.running.append(name)
            try:
                await self._ends[name].wait()
            finally:
                self.running.remove(name)


def run(scenario: Coroutine[Any, Any, None]) -> None:
    asyncio.run(scenario)


def test_each_request_has_one_fetch_whatever_others_have() -> None:
    async def scenario() -> None:
        fetches = Fetches()
        greedy = [await fetches.start("greedy", f"{number % 8}.example") for number in range(MAX_SHARED + 5)]
        assert fetches.running == greedy[: MAX_SHARED + 1]
        first, second = await fetches.start("other", "0.example"), await fetches.start("other", "0.example")
        assert fetches.running[-1] == first
        await fetches.end(first)
        assert fetches.running[-1] == second
        assert len(fetches.running) == MAX_SHARED + 2
        await fetches.cancel(*greedy, second)

    run(scenario())


def test_a_host_has_few_of_the_shared_places() -> None:
    async def scenario() -> None:
        fetches = Fetches()
        slow = [await fetches.start("a", "slow.example") for _ in range(MAX_SHARED_PER_HOST + 3)]
        assert fetches.running == slow[: MAX_SHARED_PER_HOST + 1]
        fast = await fetches.start("a", "fast.example")
        assert fetches.running[-1] == fast
        await fetches.end(slow[1])
        assert fetches.running[-1] == slow[MAX_SHARED_PER_HOST + 1]
        await fetches.cancel(*slow, fast)

    run(scenario())


def test_whoever_goes_away_takes_no_place_along() -> None:
    async def scenario() -> None:
        fetches = Fetches()
        running = [await fetches.start("a", "one.example") for _ in range(MAX_SHARED_PER_HOST + 1)]
        waiting = [await fetches.start("a", "one.example") for _ in range(3)]
        await fetches.cancel(waiting[0])
        fetches._ends[running[1]].set()
        await fetches._tasks[running[1]]  # the place has been given to the next one, which is cancelled before it runs
        await fetches.cancel(waiting[1])
        assert fetches.running[-1] == waiting[2]
        await fetches.cancel(*running, waiting[2])
        again = [await fetches.start("a", "one.example") for _ in range(MAX_SHARED_PER_HOST + 1)]
        assert fetches.running == again
        await fetches.cancel(*again)

    run(scenario())
