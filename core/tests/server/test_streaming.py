from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from typing import Any

import pytest

from inset.errors import EngineDeadError, OverloadedError
from inset.server.context import CLIENT_GONE_STATUS, RequestContext
from inset.server.streaming import ClientGoneError, EventStream, while_connected

FAR = 1e9
DISCONNECT = {"type": "http.disconnect"}


async def never() -> Any:
    await asyncio.Event().wait()


async def leave() -> dict[str, str]:
    return DISCONNECT


def test_result_of_the_work_is_returned() -> None:
    async def work() -> int:
        return 5

    assert asyncio.run(while_connected(never, work(), deadline=FAR)) == 5


def test_error_of_the_work_is_raised() -> None:
    async def work() -> None:
        raise EngineDeadError("gone")

    with pytest.raises(EngineDeadError):
        asyncio.run(while_connected(never, work(), deadline=FAR))


@pytest.mark.parametrize(("receive", "deadline", "error"), [(leave, FAR, ClientGoneError), (never, 0.0, OverloadedError)])
def test_work_is_cancelled_and_waited_for_when_nobody_waits_for_it(receive: Any, deadline: float, error: type[Exception]) -> None:
    ended = []

    async def work() -> None:
        try:
            await never()
        finally:
            await asyncio.sleep(0)
            ended.append(True)

    with pytest.raises(error):
        asyncio.run(while_connected(receive, work(), deadline=deadline))
    assert ended == [True]


class Exchange:
    """Sends one event stream and keeps what went out."""

    def __init__(self, *events: bytes, error: Exception | None = None, blocks: bool = False) -> None:
        self.sent: list[Any] = []
        self.closed: list[str] = []
        self.context = RequestContext(request_id="r", deadline=FAR)
        self._events = events
        self._error = error
        self._blocks = blocks

    async def source(self) -> AsyncGenerator[bytes, None]:
        try:
            for event in self._events:
                yield event
            if self._error is not None:
                raise self._error
            if self._blocks:
                await never()
        finally:
            self.closed.append("source")

    async def send(self, message: Any) -> None:
        self.sent.append(message)

    async def run(self, receive: Any, *, deadline: float = FAR, ends_with_done: bool = True) -> None:
        source = self.source()
        response = EventStream(source, source=source, deadline=deadline, ends_with_done=ends_with_done)
        await response({"state": {"context": self.context}, "type": "http"}, receive, self.send)

    @property
    def body(self) -> bytes:
        return b"".join(message.get("body", b"") for message in self.sent)


def test_events_are_sent_in_order_and_the_stream_is_ended() -> None:
    exchange = Exchange(b"a", b"b")
    asyncio.run(exchange.run(never))
    assert exchange.body == b"abdata: [DONE]\n\n"
    assert [message.get("more_body") for message in exchange.sent] == [None, True, True, False]


def test_error_in_the_middle_becomes_an_event() -> None:
    exchange = Exchange(b"a", error=EngineDeadError("The engine core has ended."))
    asyncio.run(exchange.run(never))
    assert exchange.body.startswith(b'adata: {"error":{"message":"The engine core has ended."')
    assert exchange.body.endswith(b"data: [DONE]\n\n")
    assert exchange.sent[-1]["more_body"] is False


def test_error_event_of_the_responses_api_has_a_name() -> None:
    exchange = Exchange(error=EngineDeadError("gone"))
    asyncio.run(exchange.run(never, ends_with_done=False))
    assert exchange.body.startswith(b'event: error\ndata: {"error":')


def test_fault_of_ours_cuts_the_stream_so_that_nobody_takes_it_for_whole() -> None:
    exchange = Exchange(b"a", error=RuntimeError("bug"))
    with pytest.raises(RuntimeError):
        asyncio.run(exchange.run(never))
    assert exchange.sent[-1]["more_body"] is True
    assert exchange.closed == ["source"]


def test_client_that_goes_away_closes_the_source() -> None:
    exchange = Exchange(b"a", blocks=True)
    asyncio.run(exchange.run(leave))
    assert exchange.context.status == CLIENT_GONE_STATUS
    assert b"[DONE]" not in exchange.body


def test_time_that_is_over_ends_the_stream_with_an_error() -> None:
    exchange = Exchange(blocks=True)
    asyncio.run(exchange.run(never, deadline=0.0))
    assert b'"code":"request_timeout"' in exchange.body
