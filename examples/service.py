"""A service of one's own around the core: conversations in, what an engine needs out.

    python -m examples.service CHECKPOINT

``POST /plan`` says what a conversation will cost, from the headers of its media alone; ``POST /prompts`` fetches, decodes and processes it.
"""

from __future__ import annotations

import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from fastapi import FastAPI, Request
from fastapi.responses import JSONResponse

from inset import Core
from inset.errors import ClientError
from inset.inputs import ProcessedPrompt


def make_app(model: str, **options: Any) -> FastAPI:
    """Returns the service for one checkpoint; `options` are those of `inset.Core.open`."""

    @asynccontextmanager
    async def lifespan(app: FastAPI) -> AsyncIterator[None]:
        with Core.open(model, **options) as core:
            app.state.core = core
            yield

    app = FastAPI(lifespan=lifespan)

    @app.exception_handler(ClientError)
    async def refuse(request: Request, error: ClientError) -> JSONResponse:
        return JSONResponse({"error": {"code": error.code, "message": str(error), "parameter": error.parameter}}, error.status)

    @app.post("/plan")
    async def plan(messages: list[dict[str, Any]]) -> dict[str, Any]:
        return describe(await app.state.core.plan(messages))

    @app.post("/prompts")
    async def process(messages: list[dict[str, Any]]) -> dict[str, Any]:
        return describe(await app.state.core.process(messages))

    return app


def describe(prompt: ProcessedPrompt) -> dict[str, Any]:
    """Returns a prompt as JSON; an engine of one's own would be handed the tensors here."""
    items = [
        {
            "modality": modality,
            "hash": prompt.mm_hashes[modality][index].hex(),
            "offset": placeholder.offset,
            "length": placeholder.length,
            "tensors": {name: list(array.shape) for name, array in (prompt.mm_kwargs[modality][index] or {}).items()},
        }
        for modality, placeholders in prompt.mm_placeholders.items()
        for index, placeholder in enumerate(placeholders)
    ]
    return {"token_ids": list(prompt.prompt_token_ids), "items": items}


if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    import uvicorn

    uvicorn.run(make_app(sys.argv[1]), host="127.0.0.1", port=8080)
