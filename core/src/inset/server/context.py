"""One HTTP request on its way through the server."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, cast

if TYPE_CHECKING:
    from starlette.types import Scope

    from inset.server.body import HeldBody

__all__ = ["CLIENT_GONE_STATUS", "RequestContext", "context_of"]

CLIENT_GONE_STATUS = 499
"""Stands in logs and metrics for a client that went away; nobody receives it."""


@dataclass(slots=True, kw_only=True)
class RequestContext:
    """One HTTP request as it passes through the server.

    Attributes:
        request_id: Made by the server; sent back as ``X-Request-Id``, and in every log line.
        deadline: When the request must have ended, on the clock of the running loop, in seconds.
        client: A digest of the API key, or empty where none is asked for.
        wants_trace: The client asked for stage times with ``X-Inset-Trace: 1``.
        status: What was answered; 499 where the client went away first.
        code: That of the error, for the log.
        prompt_tokens: For the log, once known.
        completion_tokens: The same.
        body: What was read, until it is released.
    """

    request_id: str
    deadline: float
    client: str = ""
    wants_trace: bool = False
    status: int = 0
    code: str | None = None
    prompt_tokens: int | None = None
    completion_tokens: int | None = None
    body: HeldBody[Any] | None = None

    def release_body(self) -> None:
        """Lets go of the body; idempotent."""
        if self.body is not None:
            self.body.release()
            self.body = None


def context_of(scope: Scope) -> RequestContext:
    """Returns what the server knows about the request of this scope."""
    return cast("RequestContext", scope["state"]["context"])
