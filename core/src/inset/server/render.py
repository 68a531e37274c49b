"""``POST /v1/render``, ``/tokenize`` and ``/detokenize``: what a prompt becomes, without an answer."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from inset.engine.prompts import ChatPrompt, RequestOptions, TextPrompt
from inset.engine.renderer import ChatOptions
from inset.errors import InvalidRequestError
from inset.server.context import context_of
from inset.server.exchange import handle, json_response
from inset.server.planned import describe_plan
from inset.server.protocol import DetokenizeRequest, RenderRequest, TokenizeRequest
from inset.server.service import service_of

if TYPE_CHECKING:
    from starlette.requests import Request
    from starlette.responses import Response

    from inset.engine.prompts import PromptInput
    from inset.processing.tokenizer import Tokenizer
    from inset.server.service import Service

__all__ = ["detokenize", "render", "tokenize"]


async def render(request: Request) -> Response:
    """Answers with token ids, hashes, placeholders and grids from headers alone: no picture is decoded."""

    async def work(body: RenderRequest) -> Response:
        service, context = service_of(request), context_of(request.scope)
        service.check_model(body.model)
        _check_one_of(body)
        prompt: PromptInput = service.chat_prompt(body, context)
        if body.prompt is not None:
            prompt = TextPrompt(prompt=body.prompt, options=prompt.options)
        planned = await service.engine.core.plan(prompt)
        plan = describe_plan(planned, max_model_len=service.engine.core.limits.max_model_len)
        return await service.run_text(json_response, {"object": "render", "model": service.model_name, **plan})

    return await handle(request, RenderRequest, work)


def _check_one_of(body: RenderRequest | TokenizeRequest) -> None:
    if (body.prompt is None) == (body.messages is None):
        raise InvalidRequestError("Send either messages or a prompt.", stage="parse", parameter="messages")


async def tokenize(request: Request) -> Response:
    """Answers with the token ids of a prompt or a conversation."""

    async def work(body: TokenizeRequest) -> Response:
        service = service_of(request)
        service.check_model(body.model)
        _check_one_of(body)
        core = service.engine.core
        if body.prompt is not None:
            render = partial(core.renderer.render_text, body.prompt, add_special_tokens=body.add_special_tokens)
            token_ids = (await service.run_text(render)).token_ids
        else:
            token_ids = (await core.plan(_conversation(body, service, context_of(request.scope).client))).prompt_token_ids
        tokenizer = core.tokenizer if body.return_token_strs else None
        return await service.run_text(_describe, list(token_ids), tokenizer, core.limits.max_model_len)

    return await handle(request, TokenizeRequest, work)


def _describe(token_ids: list[int], tokenizer: Tokenizer | None, max_model_len: int) -> Response:
    """Returns the answer with the tokens, spelled too where a tokenizer is given."""
    spelled = None if tokenizer is None else [tokenizer.id_to_token(token_id) for token_id in token_ids]
    return json_response({"count": len(token_ids), "max_model_len": max_model_len, "tokens": token_ids, "token_strs": spelled})


def _conversation(body: TokenizeRequest, service: Service, client: str) -> ChatPrompt:
    chat = ChatOptions(
        add_generation_prompt=body.add_generation_prompt,
        continue_final_message=body.continue_final_message,
        tools=body.tools,
        template_kwargs=body.chat_template_kwargs or {},
    )
    return ChatPrompt(messages=body.messages, policy=service.policy, chat=chat, options=RequestOptions(client=client))


async def detokenize(request: Request) -> Response:
    """Answers with the text of token ids, special tokens included."""

    async def work(body: DetokenizeRequest) -> Response:
        service = service_of(request)
        service.check_model(body.model)
        tokenizer = service.engine.core.tokenizer
        last = tokenizer.vocab_size - 1
        wrong = next((index for index, token_id in enumerate(body.tokens) if not 0 <= token_id <= last), None)
        if wrong is not None:
            raise InvalidRequestError(f"A token id must be in 0 to {last}.", stage="parse", parameter=f"tokens[{wrong}]")
        return json_response({"prompt": await service.run_text(tokenizer.decode, body.tokens, False)})

    return await handle(request, DetokenizeRequest, work)
