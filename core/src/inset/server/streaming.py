"""The client's side of a request: whether it is still there, how long it may take, and events as they come."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Coroutine
from typing import TYPE_CHECKING, Any, Final, TypeVar

import msgspec
from starlette.responses import Response

from inset.errors import InsetError, OverloadedError
from inset.server.context import CLIENT_GONE_STATUS, context_of
from inset.server.error_map import error_body, log_fault

if TYPE_CHECKING:
    from starlette.types import Receive, Scope, Send

__all__ = ["ClientGoneError", "EventStream", "encode_event", "request_timeout", "while_connected"]

T = TypeVar("T")

DONE: Final = b"data: [DONE]\n\n"


class ClientGoneError(Exception):
    """The client closed its connection before it had its answer."""


async def while_connected(receive: Receive, work: Coroutine[Any, Any, T], *, deadline: float) -> T:
    """Runs work until it ends, the client goes away, or the time is over; in the last two cases it is cancelled and waited for.

    Args:
        receive: Of a request whose body has been read.
        work: What to run.
        deadline: On the clock of the running loop, in seconds.

    Raises:
        ClientGoneError: The client went away.
        OverloadedError: The time is over, with the code ``request_timeout``.
    """
    task = asyncio.ensure_future(work)
    watcher = asyncio.ensure_future(_wait_for_disconnect(receive))
    try:
        left = deadline - asyncio.get_running_loop().time()
        await asyncio.wait({task, watcher}, timeout=max(0.0, left), return_when=asyncio.FIRST_COMPLETED)
        if task.done():
            return task.result()
        if watcher.done():
            raise ClientGoneError
        raise request_timeout()
    finally:
        task.cancel()
        watcher.cancel()
        await asyncio.gather(task, watcher, return_exceptions=True)


def request_timeout() -> OverloadedError:
    """Returns the error of a request that took too long."""
    return OverloadedError(
        "The request took longer than the server allows (--request-timeout-seconds). Ask for less, or come again later.",
        code="request_timeout",
    )


async def _wait_for_disconnect(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass


def encode_event(value: object, *, name: str | None = None) -> bytes:
    """Returns one server-sent event."""
    head = b"" if name is None else b"event: " + name.encode() + b"\n"
    return head + b"data: " + msgspec.json.encode(value) + b"\n\n"


class EventStream(Response):
    """Sends events as they come, and closes their source when the client goes away or the time is over.

    Args:
        events: Encoded events; closed here.
        source: What the events are made from; closed here, also where no event was asked for.
        deadline: On the clock of the running loop, in seconds.
        ends_with_done: The stream ends with ``[DONE]``.
    """

    def __init__(
        self, events: AsyncGenerator[bytes, None], *, source: AsyncGenerator[Any, None], deadline: float, ends_with_done: bool
    ) -> None:
        super().__init__(None, 200, {"Cache-Control": "no-cache", "X-Accel-Buffering": "no"}, "text/event-stream")
        del self.headers["content-length"]
        self._events = events
        self._source = source
        self._deadline = deadline
        self._last = DONE if ends_with_done else b""

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answers one request."""
        try:
            await send({"type": "http.response.start", "status": self.status_code, "headers": self.raw_headers})
            last = await self._send_while_connected(scope, receive, send)
        except ClientGoneError:
            context_of(scope).status = CLIENT_GONE_STATUS
            return
        finally:
            await self._events.aclose()
            await self._source.aclose()
        await send({"type": "http.response.body", "body": last, "more_body": False})

    async def _send_while_connected(self, scope: Scope, receive: Receive, send: Send) -> bytes:
        """Sends the events, and returns what comes last; the status has gone out already, so that an error can only be an event."""
        try:
            await while_connected(receive, self._send_events(send), deadline=self._deadline)
        except InsetError as error:
            log_fault(error)
            context_of(scope).code = error.code
            return encode_event(error_body(error), name=None if self._last else "error") + self._last
        return self._last

    async def _send_events(self, send: Send) -> None:
        async for event in self._events:
            await send({"type": "http.response.body", "body": event, "more_body": True})
