"""What every endpoint that reads a body does: read it, work while the client is there, answer."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncGenerator, Callable, Coroutine
from typing import TYPE_CHECKING, Any, TypeAlias, TypeVar

import msgspec
from starlette.requests import ClientDisconnect
from starlette.responses import Response

from inset.server.context import CLIENT_GONE_STATUS, context_of
from inset.server.service import service_of
from inset.server.streaming import ClientGoneError, request_timeout, while_connected

if TYPE_CHECKING:
    from starlette.requests import Request

    from inset.outputs import RequestOutput
    from inset.server.body import HeldBody

__all__ = ["Outputs", "begin", "finish", "follow", "handle", "json_response"]

R = TypeVar("R", bound=msgspec.Struct)

Outputs: TypeAlias = "AsyncGenerator[RequestOutput, None]"


def json_response(value: object) -> Response:
    """Returns a value as a JSON answer."""
    return Response(msgspec.json.encode(value), media_type="application/json")


async def handle(request: Request, kind: type[R], work: Callable[[R], Coroutine[Any, Any, Response]]) -> Response:
    """Reads the body as a request of a kind, and works on it while the client is there and the time lasts.

    Raises:
        InsetError: The request cannot be served.
    """
    context = context_of(request.scope)
    try:
        body = context.body = await _read(request, kind, context.deadline)
        assert body.value is not None
        return await while_connected(request.receive, work(body.value), deadline=context.deadline)
    except (ClientDisconnect, ClientGoneError):
        return Response(status_code=CLIENT_GONE_STATUS)
    finally:
        context.release_body()


async def _read(request: Request, kind: type[R], deadline: float) -> HeldBody[R]:
    try:
        async with asyncio.timeout_at(deadline):
            return await service_of(request).bodies.read(request, kind)
    except TimeoutError as error:
        raise request_timeout() from error


async def begin(request: Request, outputs: Outputs) -> RequestOutput:
    """Returns the first output, and lets go of the request's body: from here on the engine alone holds what it needs.

    Raises:
        InsetError: The request cannot be served; nothing has been answered yet, so that the status says so.
    """
    try:
        return await anext(outputs)
    finally:
        context_of(request.scope).release_body()


async def follow(request: Request, first: RequestOutput, outputs: Outputs) -> Outputs:
    """Yields the first output and those behind it, and counts the last one; close it to abort the request."""
    last = first
    try:
        yield first
        async for last in outputs:
            yield last
    finally:
        await outputs.aclose()
    context = context_of(request.scope)
    context.prompt_tokens, context.completion_tokens = last.usage.prompt_tokens, last.usage.completion_tokens
    service_of(request).metrics.count_answer(last)


async def finish(request: Request, outputs: Outputs) -> RequestOutput:
    """Returns the last output.

    Raises:
        InsetError: The request cannot be served.
    """
    last = await begin(request, outputs)
    async with contextlib.aclosing(follow(request, last, outputs)) as following:
        async for output in following:
            last = output
    return last
