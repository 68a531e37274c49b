"""What a step says about its requests."""

from __future__ import annotations

from collections.abc import Mapping

from inset.outputs import EngineOutput
from inset.sched.request import Request
from inset.sched.stop_check import Stop
from inset.step import RequestFailure, SchedulerOutput, TokenLogprobs

__all__ = ["failed_output", "share_encode_seconds", "token_output"]


def token_output(request: Request, token_id: int, *, stop: Stop | None, logprobs: TokenLogprobs | None) -> EngineOutput:
    """Returns the output of a request that got a token; `stop` says why it was the last one."""
    return EngineOutput(
        request_id=request.request_id,
        new_token_ids=(token_id,),
        finish_reason=None if stop is None else stop.finish_reason,
        stop_reason=None if stop is None else stop.stop_reason,
        logprobs=() if logprobs is None else (logprobs,),
        num_cached_tokens=request.num_cached_tokens,
        stage_seconds=request.times.stage_seconds(),
    )


def failed_output(request: Request, failure: RequestFailure) -> EngineOutput:
    """Returns the last output of a request that could not go on."""
    return EngineOutput(
        request_id=request.request_id,
        finish_reason="error",
        failure=failure,
        num_cached_tokens=request.num_cached_tokens,
        stage_seconds=request.times.stage_seconds(),
    )


def share_encode_seconds(in_flight: Mapping[str, Request], scheduled: SchedulerOutput, encode_seconds: float) -> None:
    """Adds the time of a step's encoders to the requests that had items encoded, in proportion to their embeds."""
    shares = {
        request_id: sum(in_flight[request_id].items[index].num_embeds for index in indices)
        for request_id, indices in scheduled.scheduled_encoder_inputs.items()
    }
    total = sum(shares.values())
    for request_id, num_embeds in shares.items():
        in_flight[request_id].times.encode_seconds += encode_seconds * num_embeds / total
