"""Whether the newest token ends an answer."""

from __future__ import annotations

from typing import NamedTuple

from inset.sched.request import Request

__all__ = ["Stop", "check_stop"]


class Stop(NamedTuple):
    """Why an answer ends: ``stop`` or ``length``, and the stop token where the client named it."""

    finish_reason: str
    stop_reason: int | None = None


def check_stop(request: Request) -> Stop | None:
    """Returns why a request ends with its newest token, or None while it goes on.

    An end-of-sequence token ends it without a `stop_reason`, one of `stop_token_ids` is the `stop_reason`. Neither counts before
    `min_tokens`. Texts are not looked for: whoever makes text of tokens does that, and aborts the request.
    """
    params = request.data.sampling_params
    token_id = request.token_ids[-1]
    if request.num_output_tokens >= params.min_tokens:
        if not params.ignore_eos and token_id in request.data.eos_token_ids:
            return Stop("stop")
        if token_id in params.stop_token_ids:
            return Stop("stop", token_id)
    return Stop("length") if len(request.token_ids) >= request.max_tokens_total else None
