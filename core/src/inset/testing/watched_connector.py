"""A connector around another one that counts, delays and fails on command, for tests of what holds for every connector."""

from __future__ import annotations

import asyncio
import threading
from typing import ClassVar

from inset.media.connector import MediaConnector
from inset.media.stream import ByteStream, FetchLimits
from inset.media.url import MediaUrl

__all__ = ["WatchedConnector", "watch"]


class WatchedConnector(MediaConnector):
    """Hands every call on to the connector inside; make one with `watch`.

    Attributes:
        num_opens: How often `open` was called.
        num_streams_closed: How many streams the core has closed.
        num_cancelled: How many calls of `open` were cancelled while they waited.
        num_opened: How often `aopen` was called.
        num_closed: How often `aclose` was called.
        failures: Raised by the next calls of `open`, in order, before the connector inside is asked.
        is_held: While True, `open` waits; every attempt that comes in the meantime waits too.
    """

    def __init__(self, inner: MediaConnector) -> None:
        self._inner = inner
        self._changed = threading.Condition()
        self.num_opens = 0
        self.num_streams_closed = 0
        self.num_cancelled = 0
        self.num_opened = 0
        self.num_closed = 0
        self.failures: list[Exception] = []
        self.is_held = False

    async def aopen(self) -> None:
        """Lends the connector inside what the core lent to this one."""
        self._inner.attach(self.context, self._get_fetcher())
        await self._inner.aopen()
        self.num_opened += 1

    async def aclose(self) -> None:
        """Closes the connector inside."""
        await self._inner.aclose()
        self.num_closed += 1

    async def open(self, url: MediaUrl, limits: FetchLimits) -> ByteStream:
        """Counts, waits and fails as told; then opens the connector inside."""
        self._note("num_opens")
        try:
            while self.is_held:  # noqa: ASYNC110  # switched from other threads, which an asyncio.Event does not allow
                await asyncio.sleep(0.005)
        except asyncio.CancelledError:
            self._note("num_cancelled")
            raise
        if self.failures:
            raise self.failures.pop(0)
        stream = await self._inner.open(url, limits)
        inner_close = stream.close

        async def close() -> None:
            if inner_close is not None:
                await inner_close()
            self._note("num_streams_closed")

        stream.close = close
        return stream

    def wait_for(self, counter: str, number: int = 1) -> None:
        """Blocks until a counter has reached a number."""
        with self._changed:
            arrived = self._changed.wait_for(lambda: getattr(self, counter) >= number, 20)
        assert arrived, f"{counter} is {getattr(self, counter)}, not {number}"

    def _note(self, counter: str) -> None:
        with self._changed:
            setattr(self, counter, getattr(self, counter) + 1)
            self._changed.notify_all()


def watch(inner: MediaConnector) -> WatchedConnector:
    """Returns a watched connector for the schemes of another one."""

    class Watched(WatchedConnector):
        schemes: ClassVar[tuple[str, ...]] = inner.schemes
        is_cacheable: ClassVar[bool] = inner.is_cacheable
        is_shared: ClassVar[bool] = inner.is_shared

    return Watched(inner)
