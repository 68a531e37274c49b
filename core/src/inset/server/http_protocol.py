"""HTTP, read by httptools, with bounds on what comes before a body: no limit of a request counts that, and it needs no API key."""

from __future__ import annotations

import asyncio
import re
from typing import Final

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

__all__ = ["MAX_HEAD_BYTES", "HttpProtocol"]

MAX_HEAD_BYTES: Final = 64 * 1024
"""Most bytes of a request line and its headers, besides what the system hands over together with their beginning."""

_UPGRADE: Final = re.compile(rb"\r\nupgrade:", re.IGNORECASE)


class HttpProtocol(HttpToolsProtocol):
    """Closes connections whose next request does not come, or whose head (request line and headers) never ends.

    A head must arrive within the time for which a connection is kept. What is left of a body whose request has been answered already has
    that time too.

    Offers to change to another protocol are left alone, as HTTP allows: Java's client makes one with each request. The parser would stop
    behind the headers for such an offer, and the body be lost.
    """

    _end_of_time: asyncio.TimerHandle | None = None
    _is_in_head = False
    _num_head_bytes = 0

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Begins to wait for the first request."""
        super().connection_made(transport)
        self._wait_for_request()

    def data_received(self, data: bytes) -> None:
        """Reads on; hides an offer from the parser: bodies in JSON cannot contain a line like it."""
        self._num_head_bytes += len(data)  # from 0 again where a head begins
        super().data_received(_UPGRADE.sub(b"\r\nx-offered-protocol:", data, count=1) if b"pgrade:" in data else data)
        is_answering = self.cycle is not None and not self.cycle.response_complete
        if is_answering:
            self._stop_waiting()
        elif self._end_of_time is None:
            self._wait_for_request()
        if self._is_in_head and self._num_head_bytes > MAX_HEAD_BYTES and not self.transport.is_closing():
            if is_answering:  # an answer cannot be put into the middle of another one
                self.transport.close()
            else:
                self.send_400_response(f"The request line and the headers are larger than {MAX_HEAD_BYTES} bytes.")

    def on_message_begin(self) -> None:
        """A head begins."""
        super().on_message_begin()
        self._is_in_head, self._num_head_bytes = True, 0

    def on_headers_complete(self) -> None:
        """A head has ended."""
        self._is_in_head = False
        super().on_headers_complete()

    def connection_lost(self, exc: Exception | None) -> None:
        """Waits for nothing any more."""
        self._stop_waiting()
        super().connection_lost(exc)

    def _wait_for_request(self) -> None:
        self._end_of_time = self.loop.call_later(self.timeout_keep_alive, self.transport.close)

    def _stop_waiting(self) -> None:
        if self._end_of_time is not None:
            self._end_of_time.cancel()
            self._end_of_time = None
