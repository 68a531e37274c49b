"""``POST /v1/chat/completions``."""

from __future__ import annotations

import contextlib
import time
from collections import defaultdict
from collections.abc import AsyncGenerator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from inset.errors import InvalidRequestError
from inset.server.answers import AnswerNews, AnswerReader, chat_usage, token_logprobs, trace_fields
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
    from inset.step import TokenLogprobs

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
                "logprobs": None if answer.logprobs is None else _logprobs(answer.logprobs, tokenizer),
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


def _logprobs(entries: Sequence[TokenLogprobs], tokenizer: Tokenizer) -> dict[str, Any]:
    return {"content": token_logprobs(entries, tokenizer), "refusal": None}


class _ChatStream:
    """The chunks of one streamed answer."""

    def __init__(self, request: Request, chat: ChatRequest) -> None:
        self._request = request
        self._service = service_of(request)
        self._context = context_of(request.scope)
        self._with_usage = chat.stream_options is not None and bool(chat.stream_options.include_usage)
        self._head = _head("chat.completion.chunk", self._service, self._context)
        self._readers: defaultdict[int, AnswerReader] = defaultdict(AnswerReader)

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
        read = [(answer, self._readers[answer.index].read(answer)) for answer in output.outputs]
        return [self._change(answer, news) for answer, news in read if news is not None]

    def _change(self, answer: CompletionOutput, news: AnswerNews) -> bytes:
        end = {"finish_reason": answer.finish_reason, "stop_reason": answer.stop_reason} if news.has_ended else {}
        logprobs = None if answer.logprobs is None else _logprobs(news.logprobs, self._service.engine.core.tokenizer)
        return self._chunk(answer.index, {"content": news.text}, logprobs=logprobs, end=end)

    def _chunk(
        self, index: int, delta: Mapping[str, Any], *, logprobs: Mapping[str, Any] | None = None, end: Mapping[str, Any] | None = None
    ) -> bytes:
        choice = {"index": index, "delta": delta, "logprobs": logprobs, "finish_reason": None, **(end or {})}
        usage = {"usage": None} if self._with_usage else {}
        return encode_event({**self._head, "choices": [choice], **usage})
