"""What happens around every request: its id, the API key, the log line, the metrics, and the last catch of a fault."""

from __future__ import annotations

import asyncio
import hashlib
import hmac
import logging
import time
import uuid
from typing import TYPE_CHECKING, Final

from starlette.datastructures import Headers, MutableHeaders

from inset.errors import AuthenticationError
from inset.server.context import CLIENT_GONE_STATUS, RequestContext
from inset.server.error_map import error_response

if TYPE_CHECKING:
    from collections.abc import Mapping

    from starlette.types import ASGIApp, Message, Receive, Scope, Send

    from inset.server.service import Service

__all__ = ["OPEN_PATHS", "RequestGate"]

logger = logging.getLogger(__name__)

OPEN_PATHS: Final = ("/health",)
"""Answered without an API key, so that a balancer needs none."""


class RequestGate:
    """Surrounds the app; pure ASGI, so that a disconnect reaches the endpoints.

    Args:
        app: What is surrounded.
        service: That of the app.
        routes: Endpoint -> its path, as logs and metrics name it.
    """

    def __init__(self, app: ASGIApp, service: Service, routes: Mapping[object, str]) -> None:
        self._app = app
        self._routes = routes
        self._service = service
        server = service.configs.server
        self._timeout_seconds = server.request_timeout_seconds
        self._key_digests = [hashlib.sha256(key.encode()).digest() for key in server.api_key]

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Passes one request on."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        headers = Headers(scope=scope)
        started = time.monotonic()
        context = RequestContext(
            request_id=uuid.uuid4().hex,
            deadline=asyncio.get_running_loop().time() + self._timeout_seconds,
            wants_trace=headers.get("x-inset-trace") == "1",
        )
        scope.setdefault("state", {})["context"] = context

        async def send_noted(message: Message) -> None:
            if message["type"] == "http.response.start":
                context.status = context.status or message["status"]
                MutableHeaders(scope=message)["X-Request-Id"] = context.request_id
            await send(message)

        try:
            await self._pass_on(scope, receive, send_noted, context=context, authorization=headers.get("authorization", ""))
        except Exception as error:
            if context.status:  # too late for an answer: the connection is cut, so that the client does not take it for whole
                logger.exception("Request %s failed while its answer was sent", context.request_id)
                raise
            await error_response(error)(scope, receive, send_noted)
        finally:
            self._note(scope, context, time.monotonic() - started)

    async def _pass_on(self, scope: Scope, receive: Receive, send: Send, *, context: RequestContext, authorization: str) -> None:
        if self._key_digests and scope["path"] not in OPEN_PATHS:
            context.client = self._identify(authorization)
        await self._app(scope, receive, send)

    def _identify(self, authorization: str) -> str:
        """Returns who sent an API key."""
        scheme, _, key = authorization.partition(" ")
        digest = hashlib.sha256(key.strip().encode()).digest()
        if scheme.lower() != "bearer" or not any(hmac.compare_digest(digest, known) for known in self._key_digests):
            raise AuthenticationError("No API key, or a wrong one: send it as 'Authorization: Bearer KEY'.", stage="parse")
        return digest.hex()

    def _note(self, scope: Scope, context: RequestContext, seconds: float) -> None:
        route = self._routes.get(scope.get("endpoint"), "unknown")
        status = context.status or CLIENT_GONE_STATUS
        self._service.metrics.count_request(route, status, seconds)
        fields = {
            "request_id": context.request_id,
            "method": scope["method"],
            "route": route,
            "status": status,
            "code": context.code,
            "seconds": round(seconds, 6),
            "prompt_tokens": context.prompt_tokens,
            "completion_tokens": context.completion_tokens,
        }
        logger.info("request", extra={"fields": {name: value for name, value in fields.items() if value is not None}})
