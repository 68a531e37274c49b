"""Endpoints that say what this server is and how it is: models, health, version, metrics."""

from __future__ import annotations

from typing import TYPE_CHECKING

from starlette.responses import Response

import inset
from inset.errors import EngineDeadError, ModelNotFoundError
from inset.server.error_map import error_response
from inset.server.exchange import json_response
from inset.server.metrics import CONTENT_TYPE
from inset.server.service import Service, service_of

if TYPE_CHECKING:
    from typing import Any

    from starlette.requests import Request

__all__ = ["get_health", "get_metrics", "get_model", "get_version", "list_models"]


async def list_models(request: Request) -> Response:
    """Answers ``GET /v1/models``."""
    return json_response({"object": "list", "data": [_describe(service_of(request))]})


async def get_model(request: Request) -> Response:
    """Answers ``GET /v1/models/NAME``."""
    service = service_of(request)
    name = str(request.path_params["name"])
    if name != service.model_name:
        raise ModelNotFoundError(f"There is no model {name[:100]!r} here; this server has {service.model_name!r}.", parameter="model")
    return json_response(_describe(service))


def _describe(service: Service) -> dict[str, Any]:
    core = service.engine.core
    return {
        "id": service.model_name,
        "object": "model",
        "created": service.created_seconds,
        "owned_by": "inset",
        "max_model_len": core.limits.max_model_len,
        "limit_mm_per_prompt": core.processor.info.get_mm_limits(),
    }


async def get_health(request: Request) -> Response:
    """Answers ``GET /health``: 200 while the engine core is there and gives signs of life, else 503."""
    service = service_of(request)
    if not service.engine.is_alive:
        return error_response(EngineDeadError("The engine core is gone; restart the server."))
    most, silent = service.configs.server.engine_silence_seconds, service.engine.client.seconds_silent
    if silent > most:
        message = f"The engine core has given no sign of life for {silent:.0f} seconds; {most:g} are allowed (--engine-silence-seconds)."
        return error_response(EngineDeadError(message))
    return json_response({"status": "ok"})


async def get_version(request: Request) -> Response:
    """Answers ``GET /version``."""
    return json_response({"version": inset.__version__})


async def get_metrics(request: Request) -> Response:
    """Answers ``GET /metrics`` in Prometheus' text form."""
    return Response(service_of(request).metrics.render(), headers={"Content-Type": CONTENT_TYPE})
