"""Endpoints that empty caches; served with ``--enable-admin-endpoints`` alone."""

from __future__ import annotations

from typing import TYPE_CHECKING

from inset.server.exchange import json_response
from inset.server.service import service_of

if TYPE_CHECKING:
    from starlette.requests import Request
    from starlette.responses import Response

__all__ = ["reset_encoder_cache", "reset_mm_cache", "reset_prefix_cache"]


async def reset_mm_cache(request: Request) -> Response:
    """Forgets processed items that no request uses, in every front end."""
    await service_of(request).engine.reset("mm_cache")
    return json_response({"status": "ok"})


async def reset_encoder_cache(request: Request) -> Response:
    """Forgets encoder outputs that no request uses."""
    await service_of(request).engine.reset("encoder_cache")
    return json_response({"status": "ok"})


async def reset_prefix_cache(request: Request) -> Response:
    """Forgets keys and values that no request uses."""
    await service_of(request).engine.reset("prefix_cache")
    return json_response({"status": "ok"})
