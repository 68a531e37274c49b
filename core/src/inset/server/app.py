"""The HTTP app around an engine."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

from fastapi import FastAPI
from starlette.exceptions import HTTPException
from starlette.middleware.cors import CORSMiddleware
from starlette.responses import Response

import inset
from inset.errors import InsetError
from inset.server import admin, chat, models, render, responses
from inset.server.context import context_of
from inset.server.error_map import error_response, http_error_response
from inset.server.middleware import RequestGate
from inset.server.service import Service

if TYPE_CHECKING:
    from starlette.requests import Request

    from inset.config import Configs
    from inset.engine.async_llm import AsyncLLM

__all__ = ["create_app"]


def create_app(engine: AsyncLLM, configs: Configs) -> FastAPI:
    """Returns the app of all endpoints.

    The app's lifespan starts the engine, and closes it. An app that is mounted into another one has no lifespan of its own: whoever mounts
    it starts and closes the engine, on the same loop.

    Args:
        engine: Not started yet, unless the app will be mounted.
        configs: Those that the engine was built with.
    """

    @asynccontextmanager
    async def lifespan(app: FastAPI) -> AsyncIterator[None]:
        async with engine:
            yield

    app = FastAPI(title="Inset", version=inset.__version__, lifespan=lifespan, redirect_slashes=False)
    app.state.service = service = Service(engine, configs)
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
    routes = [
        ("POST", "/v1/chat/completions", chat.create_chat_completion),
        ("POST", "/v1/responses", responses.create_response),
        ("POST", "/v1/render", render.render),
        ("POST", "/tokenize", render.tokenize),
        ("POST", "/detokenize", render.detokenize),
        ("GET", "/v1/models", models.list_models),
        ("GET", "/v1/models/{name:path}", models.get_model),
        ("GET", "/health", models.get_health),
        ("GET", "/version", models.get_version),
        ("GET", "/metrics", models.get_metrics),
    ]
    if with_resets:
        resets = (admin.reset_mm_cache, admin.reset_encoder_cache, admin.reset_prefix_cache)
        routes += [("POST", f"/{reset.__name__}", reset) for reset in resets]
    for method, path, endpoint in routes:
        app.add_route(path, endpoint, methods=[method])
    return {endpoint: path for _, path, endpoint in routes}


async def _on_error(request: Request, error: Exception) -> Response:
    context_of(request.scope).code = getattr(error, "code", None)
    return error_response(error)


async def _on_http_error(request: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    return http_error_response(error)
