"""The HTTP app around an engine."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, closing
from typing import TYPE_CHECKING, Final, NamedTuple

from fastapi import FastAPI
from starlette.exceptions import HTTPException
from starlette.middleware.cors import CORSMiddleware
from starlette.requests import Request
from starlette.responses import Response

import inset
from inset.errors import InsetError
from inset.server import admin, chat, models, render, responses
from inset.server.context import context_of
from inset.server.error_map import error_response, http_error_response
from inset.server.middleware import RequestGate
from inset.server.service import Service

if TYPE_CHECKING:
    from inset.config import Configs
    from inset.engine.async_llm import AsyncLLM

__all__ = ["ROUTES", "Route", "create_app"]


class Route(NamedTuple):
    """One endpoint.

    Attributes:
        method: HTTP method.
        path: As the router reads it.
        endpoint: What answers.
        is_reset: Served with ``--enable-admin-endpoints`` alone.
    """

    method: str
    path: str
    endpoint: Callable[[Request], Awaitable[Response]]
    is_reset: bool = False


ROUTES: Final = (
    Route("POST", "/v1/chat/completions", chat.create_chat_completion),
    Route("POST", "/v1/responses", responses.create_response),
    Route("POST", "/v1/render", render.render),
    Route("POST", "/tokenize", render.tokenize),
    Route("POST", "/detokenize", render.detokenize),
    Route("GET", "/v1/models", models.list_models),
    Route("GET", "/v1/models/{name:path}", models.get_model),
    Route("GET", "/health", models.get_health),
    Route("GET", "/version", models.get_version),
    Route("GET", "/metrics", models.get_metrics),
    Route("POST", "/reset_mm_cache", admin.reset_mm_cache, is_reset=True),
    Route("POST", "/reset_encoder_cache", admin.reset_encoder_cache, is_reset=True),
    Route("POST", "/reset_prefix_cache", admin.reset_prefix_cache, is_reset=True),
)


def create_app(engine: AsyncLLM, configs: Configs, *, front_id: str | None = None, is_restart: bool = False) -> FastAPI:
    """Returns the app of all endpoints.

    The app's lifespan starts the engine, and closes it. An app that is mounted into another one has no lifespan of its own: whoever mounts
    it starts and closes the engine, on the same loop.

    Args:
        engine: Not started yet, unless the app will be mounted.
        configs: Those that the engine was built with.
        front_id: The name of this front end, where several share a port.
        is_restart: It takes the place of one that has ended.
    """

    @asynccontextmanager
    async def lifespan(app: FastAPI) -> AsyncIterator[None]:
        with closing(service):
            async with engine:
                yield

    app = FastAPI(title="Inset", version=inset.__version__, lifespan=lifespan, redirect_slashes=False, openapi_url=None)
    app.state.service = service = Service(engine, configs, front_id=front_id)
    if is_restart:
        service.metrics.count_restart()
    routes = _add_routes(app, with_resets=configs.server.enable_admin_endpoints)
    app.add_exception_handler(InsetError, _on_error)
    app.add_exception_handler(HTTPException, _on_http_error)
    app.add_middleware(RequestGate, service=service, routes=routes)
    if configs.server.allowed_origins:
        app.add_middleware(
            CORSMiddleware,
            allow_origins=list(configs.server.allowed_origins),
            allow_methods=["*"],
            allow_headers=["*"],
            expose_headers=["X-Request-Id", "Retry-After"],
        )
    return app


def _add_routes(app: FastAPI, *, with_resets: bool) -> dict[object, str]:
    """Adds the endpoints, and returns each with its path."""
    routes = [route for route in ROUTES if with_resets or not route.is_reset]
    for route in routes:
        app.add_route(route.path, route.endpoint, methods=[route.method])
    return {route.endpoint: route.path for route in routes}


async def _on_error(request: Request, error: Exception) -> Response:
    context_of(request.scope).code = getattr(error, "code", None)
    return error_response(error)


async def _on_http_error(request: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    return http_error_response(error)
