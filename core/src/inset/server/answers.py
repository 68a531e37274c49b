"""From what the engine says to the values of OpenAI's answers: usage, log probabilities, trace."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from inset.outputs import CompletionOutput, RequestOutput, Usage
    from inset.processing.tokenizer import Tokenizer
    from inset.step import TokenLogprobs

__all__ = ["AnswerNews", "AnswerReader", "chat_usage", "token_logprobs", "trace_fields"]


class AnswerNews(NamedTuple):
    """What is new of one answer.

    Attributes:
        text: Behind what was read before.
        logprobs: Of the tokens behind those that were read before; none where they were not asked for.
        has_ended: There will be no more.
    """

    text: str
    logprobs: Sequence[TokenLogprobs]
    has_ended: bool


class AnswerReader:
    """Reads one answer of a stream piece by piece: an output tells all answers whole, also those that the last step did not change."""

    def __init__(self) -> None:
        self._num_characters = 0
        self._num_tokens = 0
        self._has_ended = False

    def read(self, answer: CompletionOutput) -> AnswerNews | None:
        """Returns what has come since the last call, or None where that is nothing."""
        logprobs = answer.logprobs or []
        news = AnswerNews(answer.text[self._num_characters :], logprobs[self._num_tokens :], answer.finish_reason is not None)
        if self._has_ended or not any(news):
            return None
        self._num_characters, self._num_tokens, self._has_ended = len(answer.text), len(logprobs), news.has_ended
        return news


def chat_usage(usage: Usage) -> dict[str, Any]:
    """Returns the usage of a chat answer; tokens of each modality stand beside the cached ones."""
    details = {f"{modality}_tokens": count for modality, count in usage.prompt_tokens_by_modality.items()}
    return {
        "prompt_tokens": usage.prompt_tokens,
        "completion_tokens": usage.completion_tokens,
        "total_tokens": usage.prompt_tokens + usage.completion_tokens,
        "prompt_tokens_details": {"cached_tokens": usage.cached_tokens, **details},
    }


def token_logprobs(entries: Iterable[TokenLogprobs], tokenizer: Tokenizer) -> list[dict[str, Any]]:
    """Returns log probabilities as a chat answer has them, one entry per token."""
    return [
        {**_token(entry.token_id, entry.logprob, tokenizer), "top_logprobs": [_token(*pair, tokenizer) for pair in entry.top]}
        for entry in entries
    ]


def _token(token_id: int, logprob: float, tokenizer: Tokenizer) -> dict[str, Any]:
    """Returns one token; part of a character has no text of its own, and is spelled as the vocabulary does."""
    text = tokenizer.decode([token_id], skip_special_tokens=False)
    is_part = "\ufffd" in text
    token = (tokenizer.id_to_token(token_id) or "") if is_part else text
    return {"token": token, "logprob": max(logprob, -9999.0), "bytes": None if is_part else list(text.encode())}


def trace_fields(output: RequestOutput, *, wanted: bool) -> dict[str, Any]:
    """Returns the stage times of a request, where its client asked for them."""
    return {"inset_trace": {"stage_seconds": output.stage_seconds}} if wanted else {}
