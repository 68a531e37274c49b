"""Which fetches run and which wait, so that no request waits for all that others have under way."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Final

__all__ = ["FetchPlaces"]

MAX_SHARED: Final = 128
MAX_SHARED_PER_HOST: Final = 32


@dataclass(slots=True, eq=False)
class _Place:
    """One fetch that runs or waits.

    Attributes:
        owner: Whose it is.
        host: Whom it asks.
        is_own: It is the one that its owner has whatever others do.
    """

    owner: object
    host: str
    is_own: bool = False


class FetchPlaces:
    """Places for fetches; lives on one event loop.

    One fetch of each request may always run. Further ones share `MAX_SHARED` places, a host `MAX_SHARED_PER_HOST` of them, and wait in the
    order in which they came.
    """

    def __init__(self) -> None:
        self._owners: set[object] = set()
        self._shared: Counter[str] = Counter()
        self._waiting: dict[_Place, asyncio.Future[None]] = {}

    @asynccontextmanager
    async def held(self, owner: object, host: str) -> AsyncIterator[None]:
        """Waits for a place, and has it until the end of the block."""
        place = _Place(owner, host)
        if not self._take(place):
            await self._wait(place)
        try:
            yield
        finally:
            self._give_back(place)

    def _take(self, place: _Place) -> bool:
        """Takes what a fetch needs, and says whether that was there."""
        if place.owner not in self._owners:
            self._owners.add(place.owner)
            place.is_own = True
            return True
        if self._shared[place.host] >= MAX_SHARED_PER_HOST or self._shared.total() >= MAX_SHARED:
            return False
        self._shared[place.host] += 1
        return True

    async def _wait(self, place: _Place) -> None:
        turn = self._waiting[place] = asyncio.get_running_loop().create_future()
        try:
            await turn
        except asyncio.CancelledError:
            if not turn.cancelled():  # its turn came at the same moment
                self._give_back(place)
            raise
        finally:
            self._waiting.pop(place, None)

    def _give_back(self, place: _Place) -> None:
        """Frees a place, and gives it to the first who waits and may have it."""
        if place.is_own:
            self._owners.remove(place.owner)
        else:
            self._shared -= Counter((place.host,))
        for waiting, turn in self._waiting.items():
            if not turn.done() and self._take(waiting):
                turn.set_result(None)
                return
