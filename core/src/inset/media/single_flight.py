"""One fetch for all who ask for the same thing at the same time."""

from __future__ import annotations

import asyncio
import copy
from collections.abc import Awaitable, Callable, Hashable
from typing import Generic, Protocol, TypeVar

__all__ = ["Charge", "Meter", "SingleFlight"]

T = TypeVar("T")


class Charge(Protocol):
    """Whatever counts the bytes of one request."""

    def add_downloaded(self, num_bytes: int) -> None:
        """Counts bytes; raises when the request may have no more."""


class Meter:
    """Counts the bytes of one item against a budget up to the highest mark: what a further attempt, or flight, brings again counts once."""

    def __init__(self, budget: Charge | None) -> None:
        self._budget = budget
        self._counted_bytes = 0

    def reach(self, num_bytes: int) -> None:
        """Is told how many bytes have arrived; raises when the request may have no more."""
        if self._budget is not None and num_bytes > self._counted_bytes:
            self._budget.add_downloaded(num_bytes - self._counted_bytes)
            self._counted_bytes = num_bytes


class _Participant(Generic[T]):
    """One caller that waits for a flight."""

    def __init__(self, meter: Meter | None) -> None:
        self.done: asyncio.Future[T] = asyncio.get_running_loop().create_future()
        self._meter = meter

    def charge(self, num_bytes: int) -> None:
        if self._meter is None or self.done.done():
            return
        try:
            self._meter.reach(num_bytes)
        except Exception as error:
            self.done.set_exception(error)

    def succeed(self, result: T) -> None:
        if not self.done.done():
            self.done.set_result(result)

    def fail(self, error: Exception) -> None:
        if not self.done.done():
            self.done.set_exception(copy.copy(error))  # each caller notes its own item in the error that it gets


class _Flight(Generic[T]):
    def __init__(self) -> None:
        self.participants: set[_Participant[T]] = set()
        self.task: asyncio.Task[None] | None = None
        self.num_bytes = 0

    def progress(self, num_bytes: int) -> None:
        self.num_bytes = max(self.num_bytes, num_bytes)
        for participant in tuple(self.participants):
            participant.charge(num_bytes)

    async def run(self, fetch: Callable[[Callable[[int], None]], Awaitable[T]]) -> None:
        try:
            result = await fetch(self.progress)
        except asyncio.CancelledError:
            for participant in self.participants:
                participant.done.cancel()
            raise
        except Exception as error:
            for participant in self.participants:
                participant.fail(error)
        else:
            for participant in self.participants:
                participant.succeed(result)


class SingleFlight(Generic[T]):
    """Keeps the flights of one loop.

    A flight is a task of its own. Those who wait for it may leave, by cancellation or because their own budget is spent, and the others go
    on; when the last one leaves, the flight is cancelled.
    """

    def __init__(self) -> None:
        self._flights: dict[Hashable, _Flight[T]] = {}

    @property
    def num_waiting(self) -> int:
        """How many callers wait; may be read from any thread."""
        return sum(len(flight.participants) for flight in tuple(self._flights.values()))

    def is_flying(self, key: Hashable) -> bool:
        """Tells whether `join` would join others."""
        return key in self._flights

    async def join(self, key: Hashable, fetch: Callable[[Callable[[int], None]], Awaitable[T]], *, meter: Meter | None = None) -> T:
        """Returns what `fetch` returns, which is started unless a flight of this key is under way.

        Args:
            key: Two calls with equal keys may share one result.
            fetch: Called with a function that it tells the number of bytes that have arrived.
            meter: Counts the bytes for this caller alone; who joins again for the same item brings the same one.
        """
        flight = self._flights.get(key)
        if flight is None:
            flight = self._flights[key] = _Flight()
            flight.task = asyncio.create_task(self._fly(key, flight, fetch))
        participant: _Participant[T] = _Participant(meter)
        flight.participants.add(participant)
        participant.charge(flight.num_bytes)
        try:
            return await participant.done
        finally:
            flight.participants.discard(participant)
            if not flight.participants:
                self._leave(key, flight)

    async def _fly(self, key: Hashable, flight: _Flight[T], fetch: Callable[[Callable[[int], None]], Awaitable[T]]) -> None:
        try:
            await flight.run(fetch)
        finally:
            self._forget(key, flight)

    def _leave(self, key: Hashable, flight: _Flight[T]) -> None:
        # Forgotten at once: who comes now starts anew instead of joining a flight that is being cancelled.
        self._forget(key, flight)
        if flight.task is not None:
            flight.task.cancel()

    def _forget(self, key: Hashable, flight: _Flight[T]) -> None:
        if self._flights.get(key) is flight:
            del self._flights[key]
