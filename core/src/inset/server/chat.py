"""``POST /v1/chat/completions``."""

from __future__ import annotations

import contextlib
import time
from collections.abc import AsyncGenerator, Mapping
from typing import TYPE_CHECKING, Any

from inset.errors import InvalidRequestError
from inset.server.answers import chat_usage, token_logprobs, trace_fields
from inset.server.context import RequestContext, context_of
from inset.server.exchange import Outputs, begin, finish, follow, handle, json_response
from inset.server.protocol import ChatRequest
from inset.server.sampling import chat_sampling
from inset.server.service import Service, service_of
from inset.server.streaming import EventStream, encode_event

if TYPE_CHECKING:
    from starlette.requests import Request
    from starlette.responses import Response

    from inset.outputs import CompletionOutput, RequestOutput
    from inset.processing.tokenizer import Tokenizer

__all__ = ["create_chat_completion"]


async def create_chat_completion(request: Request) -> Response:
    """Answers a conversation, at once or as a stream."""

    async def work(chat: ChatRequest) -> Response:
        return await _answer(request, chat)

    return await handle(request, ChatRequest, work)


async def _answer(request: Request, chat: ChatRequest) -> Response:
    service, context = service_of(request), context_of(request.scope)
    service.check_model(chat.model)
    if chat.stream_options is not None and not chat.stream:
        raise InvalidRequestError("stream_options needs stream to be true.", stage="parse", parameter="stream_options")
    params = chat_sampling(chat, service.engine.core.default_sampling_params)
    outputs = service.engine.generate(service.chat_prompt(chat, context), params, request_id=context.request_id)
    chat.messages = None  # the engine holds the media from here on, and lets go of them as early as it can
    if not chat.stream:
        return json_response(_whole(await finish(request, outputs), service, context))
    first = await begin(request, outputs)
    return EventStream(_ChatStream(request, chat).events(first, outputs), source=outputs, deadline=context.deadline, ends_with_done=True)


def _whole(output: RequestOutput, service: Service, context: RequestContext) -> dict[str, Any]:
    tokenizer = service.engine.core.tokenizer
    return {
        **_head("chat.completion", service, context),
        "choices": [
            {
                "index": answer.index,
                "message": {"role": "assistant", "content": answer.text, "refusal": None},
                "logprobs": _logprobs(answer, tokenizer, start=0),
                "finish_reason": answer.finish_reason,
                "stop_reason": answer.stop_reason,
            }
            for answer in output.outputs
        ],
        "usage": chat_usage(output.usage),
        **trace_fields(output, wanted=context.wants_trace),
    }


def _head(kind: str, service: Service, context: RequestContext) -> dict[str, Any]:
    return {"id": f"chatcmpl-{context.request_id}", "object": kind, "created": int(time.time()), "model": service.model_name}


def _logprobs(answer: CompletionOutput, tokenizer: Tokenizer, *, start: int) -> dict[str, Any] | None:
    if answer.logprobs is None:
        return None
    return {"content": token_logprobs(answer.logprobs[start:], tokenizer), "refusal": None}


class _ChatStream:
    """The chunks of one streamed answer."""

    def __init__(self, request: Request, chat: ChatRequest) -> None:
        self._request = request
        self._service = service_of(request)
        self._context = context_of(request.scope)
        self._with_usage = chat.stream_options is not None and chat.stream_options.include_usage
        self._head = _head("chat.completion.chunk", self._service, self._context)
        self._num_characters: dict[int, int] = {}
        self._num_tokens: dict[int, int] = {}
        self._ended: set[int] = set()

    async def events(self, first: RequestOutput, outputs: Outputs) -> AsyncGenerator[bytes, None]:
        """Yields the encoded chunks."""
        for answer in first.outputs:
            yield self._chunk(answer.index, {"role": "assistant", "content": ""})
        output = first
        async with contextlib.aclosing(follow(self._request, first, outputs)) as following:
            async for output in following:
                for event in self._changes(output):
                    yield event
        if self._with_usage or self._context.wants_trace:
            trace = trace_fields(output, wanted=self._context.wants_trace)
            yield encode_event({**self._head, "choices": [], "usage": chat_usage(output.usage), **trace})

    def _changes(self, output: RequestOutput) -> list[bytes]:
        """Returns the chunks of what has come since the last output."""
        return [self._change(answer) for answer in output.outputs if self._has_changed(answer)]

    def _has_changed(self, answer: CompletionOutput) -> bool:
        if answer.index in self._ended:
            return False
        has_text = len(answer.text) > self._num_characters.get(answer.index, 0)
        return has_text or answer.finish_reason is not None or bool(answer.logprobs)

    def _change(self, answer: CompletionOutput) -> bytes:
        shown, told = self._num_characters.get(answer.index, 0), self._num_tokens.get(answer.index, 0)
        self._num_characters[answer.index], self._num_tokens[answer.index] = len(answer.text), len(answer.logprobs or ())
        end: dict[str, Any] = {}
        if answer.finish_reason is not None:
            self._ended.add(answer.index)
            end = {"finish_reason": answer.finish_reason, "stop_reason": answer.stop_reason}
        logprobs = _logprobs(answer, self._service.engine.core.tokenizer, start=told)
        return self._chunk(answer.index, {"content": answer.text[shown:]}, logprobs=logprobs, end=end)

    def _chunk(
        self, index: int, delta: Mapping[str, Any], *, logprobs: Mapping[str, Any] | None = None, end: Mapping[str, Any] | None = None
    ) -> bytes:
        choice = {"index": index, "delta": delta, "logprobs": logprobs, "finish_reason": None, **(end or {})}
        usage = {"usage": None} if self._with_usage else {}
        return encode_event({**self._head, "choices": [choice], **usage})
