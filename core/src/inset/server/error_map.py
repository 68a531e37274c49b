"""Errors as HTTP answers: the one place that decides status, headers and body."""

from __future__ import annotations

import logging
from typing import Any, Final

import msgspec
from starlette.exceptions import HTTPException
from starlette.responses import Response

from inset.errors import ClientError, OverloadedError, ServerError

__all__ = ["ERROR_TYPES", "error_body", "error_response", "http_error_response", "log_fault", "status_of"]

logger = logging.getLogger(__name__)

ERROR_TYPES: Final = {
    400: "invalid_request_error",
    401: "authentication_error",
    404: "not_found_error",
    405: "invalid_request_error",
    409: "conflict_error",
    413: "request_too_large",
    422: "unprocessable_entity_error",
    500: "server_error",
    503: "overloaded_error",
}
"""Status -> the ``type`` of the error body."""

_MAX_MESSAGE_CHARACTERS: Final = 1000

_INTERNAL: Final = "The server made a mistake; its log has the details under this request's id."


def status_of(error: BaseException) -> int:
    """Returns the status of an error: that of its class, and 500 for what should never reach a client."""
    return error.status if isinstance(error, ClientError | ServerError) else 500


def error_body(error: BaseException) -> dict[str, Any]:
    """Returns the body of an error as clients of OpenAI read it, with the item's place beside it.

    Options, plugins and unforeseen errors speak to the operator, so that their words stay in the log.
    """
    status = status_of(error)
    fields: dict[str, Any] = {"message": _INTERNAL, "type": ERROR_TYPES[status], "param": None, "code": "internal_error"}
    if isinstance(error, ClientError | ServerError):
        fields.update(message=_cut(str(error)), param=error.parameter, code=error.code)
        place = {"stage": error.stage, "modality": error.modality, "item_index": error.item_index}
        fields.update({name: value for name, value in place.items() if value is not None})
    return {"error": fields}


def _cut(message: str) -> str:
    """Returns a message that quotes little of what the client sent, however long that was."""
    return message if len(message) <= _MAX_MESSAGE_CHARACTERS else message[:_MAX_MESSAGE_CHARACTERS] + " …"


def log_fault(error: BaseException) -> None:
    """Writes a fault of ours to the log; faults of clients are theirs."""
    if status_of(error) == 500:
        logger.error("A request failed: %s", error, exc_info=error)


def error_response(error: BaseException) -> Response:
    """Returns the answer to a request that failed; faults of ours are logged."""
    status = status_of(error)
    log_fault(error)
    headers = {}
    if status == 503:
        seconds = error.retry_after_seconds if isinstance(error, OverloadedError) else 1.0
        headers["Retry-After"] = str(max(1, round(seconds)))
    if status == 401:
        headers["WWW-Authenticate"] = "Bearer"
    return Response(msgspec.json.encode(error_body(error)), status, headers, media_type="application/json")


def http_error_response(error: HTTPException) -> Response:
    """Returns the answer to a request that no endpoint takes: an unknown path, or a method that it has not."""
    words = {404: "There is no such endpoint.", 405: "This endpoint does not take that method."}
    message = words.get(error.status_code, error.detail)
    fields = {
        "message": message,
        "type": ERROR_TYPES.get(error.status_code, "invalid_request_error"),
        "param": None,
        "code": "no_such_endpoint",
    }
    return Response(msgspec.json.encode({"error": fields}), error.status_code, error.headers, media_type="application/json")
