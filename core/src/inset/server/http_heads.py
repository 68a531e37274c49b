"""Bounds what comes before a request's body, which neither a body's limits nor the time of a request count, and which needs no API key."""

from __future__ import annotations

import asyncio
from typing import Any, Final

__all__ = ["MAX_HEAD_BYTES", "LimitedHeads"]

MAX_HEAD_BYTES: Final = 64 * 1024


class LimitedHeads(asyncio.Protocol):
    """Stands before a protocol of uvicorn: the request line and the headers must arrive in time, and be no larger than `MAX_HEAD_BYTES`.

    The time is that for which a connection is kept. What arrives in one piece of the system's is not counted.
    """

    cycle: Any
    loop: Any
    transport: Any
    timeout_keep_alive: Any
    send_400_response: Any
    _end_of_time: asyncio.TimerHandle | None = None
    _num_head_bytes = 0

    def connection_made(self, transport: Any) -> None:
        """Begins to wait for the first request."""
        super().connection_made(transport)
        self._wait_for_head()

    def data_received(self, data: bytes) -> None:
        """Reads on, and counts what belongs to a head that has begun before."""
        was_waiting = self._end_of_time is not None
        super().data_received(data)
        if self.cycle is not None and not self.cycle.response_complete:
            self._stop_waiting()
        elif not was_waiting:
            self._wait_for_head()
        else:
            self._num_head_bytes += len(data)
            if self._num_head_bytes > MAX_HEAD_BYTES and not self.transport.is_closing():
                self.send_400_response(f"The request line and the headers are larger than {MAX_HEAD_BYTES} bytes.")

    def connection_lost(self, exc: Exception | None) -> None:
        """Waits for nothing any more."""
        self._stop_waiting()
        super().connection_lost(exc)

    def _wait_for_head(self) -> None:
        self._num_head_bytes = 0
        self._end_of_time = self.loop.call_later(self.timeout_keep_alive, self.transport.close)

    def _stop_waiting(self) -> None:
        if self._end_of_time is not None:
            self._end_of_time.cancel()
            self._end_of_time = None
