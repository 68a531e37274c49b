"""Sampling options of requests, on top of the checkpoint's defaults."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING, Any

from inset.errors import InvalidRequestError
from inset.server.protocol import SamplingFields

if TYPE_CHECKING:
    from inset.sampling_params import SamplingParams
    from inset.server.protocol import ChatRequest, ResponsesRequest

__all__ = ["chat_sampling", "responses_sampling"]

_SHARED = SamplingFields.__struct_fields__


def chat_sampling(request: ChatRequest, defaults: SamplingParams) -> SamplingParams:
    """Returns the sampling params of a chat request; without a longest answer it is as long as the context allows.

    Raises:
        InvalidRequestError: A value is out of range, or options contradict each other.
    """
    if request.top_logprobs is not None and not request.logprobs:
        raise InvalidRequestError("top_logprobs needs logprobs to be true.", stage="parse", parameter="top_logprobs")
    longest = request.max_tokens if request.max_completion_tokens is None else request.max_completion_tokens
    own: dict[str, Any] = {
        "max_tokens": longest,
        "logprobs": (request.top_logprobs or 0) if request.logprobs else None,
        "logit_bias": _logit_bias(request.logit_bias or {}),
    }
    if request.n is not None:
        own["n"] = request.n
    return _build(request, defaults, own)


def responses_sampling(request: ResponsesRequest, defaults: SamplingParams) -> SamplingParams:
    """Returns the sampling params of a request of the responses API.

    Raises:
        InvalidRequestError: A value is out of range.
    """
    wants_logprobs = "message.output_text.logprobs" in (request.include or ())
    return _build(
        request, defaults, {"max_tokens": request.max_output_tokens, "logprobs": (request.top_logprobs or 0) if wants_logprobs else None}
    )


def _build(request: SamplingFields, defaults: SamplingParams, own: dict[str, Any]) -> SamplingParams:
    given = {name: getattr(request, name) for name in _SHARED}
    own.update({name: value for name, value in given.items() if value is not None})
    return dataclasses.replace(defaults, **own)


def _logit_bias(bias: dict[str, float]) -> dict[int, float]:
    try:
        return {int(token_id): value for token_id, value in bias.items()}
    except ValueError as error:
        raise InvalidRequestError("logit_bias needs token ids as its names.", stage="parse", parameter="logit_bias") from error
