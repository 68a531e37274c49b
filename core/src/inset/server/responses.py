"""``POST /v1/responses``: text and pictures in, text out; nothing is stored."""

from __future__ import annotations

import contextlib
import re
import time
from collections.abc import AsyncGenerator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from inset.engine.prompts import ChatPrompt
from inset.errors import InsetError, InvalidRequestError
from inset.server.answers import AnswerReader, token_logprobs, trace_fields
from inset.server.context import RequestContext, context_of
from inset.server.exchange import Outputs, begin, finish, follow, handle, json_response
from inset.server.protocol import ResponsesRequest
from inset.server.sampling import responses_sampling
from inset.server.service import Service, service_of
from inset.server.streaming import EventStream, encode_event

if TYPE_CHECKING:
    from starlette.requests import Request
    from starlette.responses import Response

    from inset.outputs import CompletionOutput, RequestOutput
    from inset.step import TokenLogprobs

__all__ = ["create_response"]


async def create_response(request: Request) -> Response:
    """Answers an input, at once or as a stream of events."""

    async def work(body: ResponsesRequest) -> Response:
        try:
            return await _answer(request, body)
        except InsetError as error:
            error.parameter = _rename(error.parameter, body)
            raise

    return await handle(request, ResponsesRequest, work)


async def _answer(request: Request, body: ResponsesRequest) -> Response:
    service, context = service_of(request), context_of(request.scope)
    service.check_model(body.model)
    for name in ("tools", "background"):
        if getattr(body, name):
            raise InvalidRequestError(f"This server has no {name}.", stage="parse", parameter=name)
    prompt = ChatPrompt(messages=_messages(body), policy=service.policy, options=service.request_options(body, context))
    params = responses_sampling(body, service.engine.core.default_sampling_params)
    outputs = service.engine.generate(prompt, params, request_id=context.request_id)
    del prompt
    body.input = None  # the engine holds the media from here on, and lets go of them as early as it can
    answer = _Answer(body, service, context, temperature=params.temperature, top_p=params.top_p)
    if not body.stream:
        return json_response(answer.whole(await finish(request, outputs)))
    first = await begin(request, outputs)
    return EventStream(_events(request, answer, first, outputs), source=outputs, deadline=context.deadline, ends_with_done=False)


def _messages(body: ResponsesRequest) -> list[dict[str, Any]]:
    """Returns the input as messages of a chat."""
    system = [] if body.instructions is None else [{"role": "system", "content": body.instructions}]
    if isinstance(body.input, str):
        return [*system, {"role": "user", "content": body.input}]
    if not isinstance(body.input, list) or not body.input:
        raise InvalidRequestError("input must be text, or a list of at least one message.", stage="parse", parameter="input")
    return [*system, *(_message(item, index) for index, item in enumerate(body.input))]


def _message(item: Any, index: int) -> dict[str, Any]:
    where = f"input[{index}]"
    if not isinstance(item, Mapping) or item.get("type", "message") != "message":
        raise InvalidRequestError("An input item must be a message with a role and content.", stage="parse", parameter=where)
    return {"role": item.get("role"), "content": item.get("content")}


def _rename(parameter: str | None, body: ResponsesRequest) -> str | None:
    """Returns the place of a fault in the words of this API: messages are items of the input, behind the instructions."""
    found = re.match(r"messages\[(\d+)\]", parameter or "")
    if parameter is None or found is None:
        return "input" if parameter == "messages" else parameter
    index = int(found[1]) - (body.instructions is not None)
    return "instructions" if index < 0 else f"input[{index}]{parameter[found.end() :]}"


class _Answer:
    """The values of one response object, at every point of its life."""

    def __init__(self, body: ResponsesRequest, service: Service, context: RequestContext, *, temperature: float, top_p: float) -> None:
        self._tokenizer = service.engine.core.tokenizer
        self._context = context
        self.message_id = f"msg_{context.request_id}"
        self._head: dict[str, Any] = {
            "id": f"resp_{context.request_id}",
            "object": "response",
            "created_at": int(time.time()),
            "model": service.model_name,
            "instructions": body.instructions,
            "max_output_tokens": body.max_output_tokens,
            "temperature": temperature,
            "top_p": top_p,
            "metadata": body.metadata or {},
            "parallel_tool_calls": False,
            "previous_response_id": None,
            "store": False,
            "text": {"format": {"type": "text"}},
            "tool_choice": "none",
            "tools": [],
            "truncation": "disabled",
        }

    def begun(self) -> dict[str, Any]:
        """Returns the response before anything of the answer is there."""
        return {**self._head, "status": "in_progress", "error": None, "incomplete_details": None, "output": [], "usage": None}

    def whole(self, output: RequestOutput) -> dict[str, Any]:
        """Returns the finished response."""
        [answer] = output.outputs
        is_cut = answer.finish_reason == "length"
        return {
            **self._head,
            "status": "incomplete" if is_cut else "completed",
            "error": None,
            "incomplete_details": {"reason": "max_output_tokens"} if is_cut else None,
            "output": [self.message(answer)],
            "usage": _usage(output),
            **trace_fields(output, wanted=self._context.wants_trace),
        }

    def message(self, answer: CompletionOutput | None) -> dict[str, Any]:
        """Returns the message item, finished, or empty where there is no answer yet."""
        fields: dict[str, Any] = {"id": self.message_id, "type": "message", "role": "assistant"}
        if answer is None:
            return {**fields, "status": "in_progress", "content": []}
        status = "incomplete" if answer.finish_reason == "length" else "completed"
        return {**fields, "status": status, "content": [self.part(answer)]}

    def part(self, answer: CompletionOutput | None) -> dict[str, Any]:
        """Returns the text part of the message."""
        logprobs = [] if answer is None else self.logprobs(answer.logprobs or ())
        return {"type": "output_text", "text": "" if answer is None else answer.text, "annotations": [], "logprobs": logprobs}

    def logprobs(self, entries: Sequence[TokenLogprobs]) -> list[dict[str, Any]]:
        """Returns log probabilities as parts and deltas have them."""
        return token_logprobs(entries, self._tokenizer)


def _usage(output: RequestOutput) -> dict[str, Any]:
    usage = output.usage
    details = {f"{modality}_tokens": count for modality, count in usage.prompt_tokens_by_modality.items()}
    return {
        "input_tokens": usage.prompt_tokens,
        "input_tokens_details": {"cached_tokens": usage.cached_tokens, **details},
        "output_tokens": usage.completion_tokens,
        "output_tokens_details": {"reasoning_tokens": 0},
        "total_tokens": usage.prompt_tokens + usage.completion_tokens,
    }


class _Numbered:
    """Numbers the events of one stream."""

    def __init__(self) -> None:
        self._next = 0

    def event(self, kind: str, **fields: Any) -> bytes:
        """Returns one encoded event."""
        number, self._next = self._next, self._next + 1
        return encode_event({"type": kind, "sequence_number": number, **fields}, name=kind)


async def _events(request: Request, answer: _Answer, first: RequestOutput, outputs: Outputs) -> AsyncGenerator[bytes, None]:
    """Yields the encoded events of one answer."""
    numbered = _Numbered()
    item = {"output_index": 0, "item_id": answer.message_id}
    part = {**item, "content_index": 0}
    for kind in ("response.created", "response.in_progress"):
        yield numbered.event(kind, response=answer.begun())
    yield numbered.event("response.output_item.added", output_index=0, item=answer.message(None))
    yield numbered.event("response.content_part.added", **part, part=answer.part(None))
    output, reader = first, AnswerReader()
    async with contextlib.aclosing(follow(request, first, outputs)) as following:
        async for output in following:
            news = reader.read(output.outputs[0])
            if news is not None and (news.text or news.logprobs):
                yield numbered.event("response.output_text.delta", **part, delta=news.text, logprobs=answer.logprobs(news.logprobs))
    done = output.outputs[0]
    finished = answer.part(done)
    yield numbered.event("response.output_text.done", **part, text=done.text, logprobs=finished["logprobs"])
    yield numbered.event("response.content_part.done", **part, part=finished)
    yield numbered.event("response.output_item.done", output_index=0, item=answer.message(done))
    whole = answer.whole(output)
    yield numbered.event(f"response.{whole['status']}", response=whole)
