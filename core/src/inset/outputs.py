"""What a caller gets back."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from inset.step import RequestFailure, TokenLogprobs

__all__ = ["CompletionOutput", "EngineOutput", "RequestOutput", "Usage"]


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineOutput:
    """What the engine core says about one request after a step.

    Attributes:
        request_id: Its id.
        new_token_ids: Tokens of this step.
        finish_reason: ``stop``, ``length``, ``abort`` or ``error``, or None while it runs.
        stop_reason: The stop token that ended it, or None.
        logprobs: One entry per new token, where asked for.
        failure: Why, where `finish_reason` is ``error``.
        num_cached_tokens: Prompt positions that the prefix cache held.
        stage_seconds: Times so far: ``transfer``, ``queue``, ``encode``, ``prefill``, ``decode_tokens``.
    """

    request_id: str
    new_token_ids: Sequence[int] = ()
    finish_reason: str | None = None
    stop_reason: int | None = None
    logprobs: Sequence[TokenLogprobs] = ()
    failure: RequestFailure | None = None
    num_cached_tokens: int = 0
    stage_seconds: Mapping[str, float] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class Usage:
    """Tokens that a request took.

    Attributes:
        prompt_tokens: All prompt positions, placeholders included.
        completion_tokens: Generated tokens of all answers.
        prompt_tokens_by_modality: Placeholder tokens per modality.
        cached_tokens: Prompt positions that the prefix cache held.
    """

    prompt_tokens: int
    completion_tokens: int
    prompt_tokens_by_modality: Mapping[str, int] = field(default_factory=dict)
    cached_tokens: int = 0


@dataclass(slots=True, kw_only=True)
class CompletionOutput:
    """One answer, as far as it has come.

    Attributes:
        index: Which of the `n` answers.
        text: All text so far.
        token_ids: All tokens so far, a final stop token included.
        finish_reason: As in `EngineOutput`.
        stop_reason: The stop text or token that ended it, or None.
        logprobs: One entry per token, or None where not asked for.
    """

    index: int
    text: str = ""
    token_ids: list[int] = field(default_factory=list)
    finish_reason: str | None = None
    stop_reason: int | str | None = None
    logprobs: list[TokenLogprobs] | None = None


@dataclass(slots=True, kw_only=True)
class RequestOutput:
    """A request and its answers, as far as they have come.

    Attributes:
        request_id: Its id.
        prompt: The rendered text, or None where there was none.
        prompt_token_ids: Token ids with the placeholders expanded.
        outputs: The answers.
        finished: All answers have ended.
        usage: Tokens taken.
        stage_seconds: Stage -> seconds: ``render``, ``fetch``, ``probe``, ``plan``, ``decode``, ``materialize``, ``transfer``, ``queue``,
            ``encode``, ``prefill``, ``decode_tokens``, all items together; stages that did not happen are absent.
    """

    request_id: str
    prompt: str | None
    prompt_token_ids: list[int]
    outputs: list[CompletionOutput]
    finished: bool
    usage: Usage
    stage_seconds: dict[str, float] = field(default_factory=dict)
