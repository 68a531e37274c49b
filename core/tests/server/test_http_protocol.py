"""Request lines and headers that are too long or never end."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from typing import Any

import pytest
import uvicorn
from starlette.responses import PlainTextResponse
from uvicorn.server import ServerState

from inset.server.http_protocol import MAX_HEAD_BYTES, HttpProtocol

LIMIT_SECONDS = 30.0
ANSWERS = PlainTextResponse("answered")
REQUEST = b"GET / HTTP/1.1\r\nHost: x\r\n\r\n"
Client = tuple[asyncio.StreamReader, asyncio.StreamWriter]


@asynccontextmanager
async def connected(*, app: Any = ANSWERS, keep_alive_seconds: int | float = 60) -> AsyncIterator[Client]:
    config = uvicorn.Config(app, http=HttpProtocol, timeout_keep_alive=keep_alive_seconds, log_config=None)  # type: ignore[arg-type]
    state = ServerState()
    listening = await asyncio.get_running_loop().create_server(
        lambda: HttpProtocol(config=config, server_state=state, app_state={}), "127.0.0.1", 0
    )
    async with listening, asyncio.timeout(LIMIT_SECONDS):
        reader, writer = await asyncio.open_connection(*listening.sockets[0].getsockname())
        try:
            yield reader, writer
        finally:
            writer.close()


async def never_answers(scope: Any, receive: Any, send: Any) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass


async def ask(client: Client) -> bytes:
    client[1].write(REQUEST)
    await client[0].readuntil(b"\r\n\r\n")
    return await client[0].readexactly(len(b"answered"))


async def nothing(client: Client) -> None:
    pass


async def half_a_head(client: Client) -> None:
    client[1].write(REQUEST[:-2])


async def a_request_and_half_a_head(client: Client) -> None:
    await ask(client)
    client[1].write(REQUEST[:-2])


@pytest.mark.parametrize("begin", [nothing, half_a_head, a_request_and_half_a_head])
def test_connection_whose_request_never_comes_is_closed(begin: Callable[[Client], Awaitable[None]]) -> None:
    async def scenario() -> bytes:
        async with connected(keep_alive_seconds=0.05) as client:
            await begin(client)
            return await client[0].read()

    assert asyncio.run(scenario()) == b""


@pytest.mark.parametrize("line", [b"x-a: " + b"a" * 1000 + b"\r\n", b"a" * 1000], ids=["many headers", "one header"])
def test_headers_without_an_end_are_refused(line: bytes) -> None:
    async def scenario() -> bytes:
        async with connected() as (reader, writer):
            writer.write(REQUEST[:-2] + b"x-b: ")
            answer = asyncio.ensure_future(reader.read())
            for _ in range(64):
                if answer.done():
                    break
                writer.write(line * (MAX_HEAD_BYTES // 1000))
                await writer.drain()
            return await answer

    try:
        answer = asyncio.run(scenario())
    except ConnectionResetError:  # the answer may be lost where more was on its way
        return
    assert answer.startswith(b"HTTP/1.1 400")


def test_requests_of_one_connection_are_answered_however_much_they_are_together() -> None:
    async def scenario() -> list[bytes]:
        async with connected() as client:
            return [await ask(client) for _ in range(2 * MAX_HEAD_BYTES // len(REQUEST))]

    assert set(asyncio.run(scenario())) == {b"answered"}


def test_the_rest_of_a_body_behind_its_answer_is_no_head() -> None:
    async def scenario() -> bytes:
        async with connected() as client:
            rest = MAX_HEAD_BYTES * 4
            client[1].write(REQUEST[:-2] + f"content-length: {rest}\r\n\r\n".encode())
            await client[0].readuntil(b"answered")
            for _ in range(4):
                client[1].write(b"x" * (rest // 4))
                await client[1].drain()
            return await ask(client)

    assert asyncio.run(scenario()) == b"answered"


def test_headers_without_an_end_behind_a_request_that_is_being_answered_close_the_connection() -> None:
    async def scenario() -> bytes:
        async with connected(app=never_answers) as (reader, writer):
            writer.write(REQUEST + REQUEST[:-2] + b"x-b: ")
            end = asyncio.ensure_future(reader.read())
            while not end.done():
                writer.write(b"a" * MAX_HEAD_BYTES)
                await asyncio.sleep(0)
            return await end

    with suppress(ConnectionResetError):
        assert asyncio.run(scenario()) == b""
