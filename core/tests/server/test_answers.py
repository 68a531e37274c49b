from __future__ import annotations

import pytest

from inset.outputs import CompletionOutput
from inset.server.answers import AnswerNews, AnswerReader
from inset.step import TokenLogprobs


def answer(text: str, num_tokens: int, finish_reason: str | None = None, *, has_logprobs: bool = True) -> CompletionOutput:
    logprobs = [TokenLogprobs(token_id, -0.1) for token_id in range(num_tokens)] if has_logprobs else None
    return CompletionOutput(index=0, text=text, token_ids=[*range(num_tokens)], finish_reason=finish_reason, logprobs=logprobs)


def test_pieces_of_a_streamed_answer_are_the_answer() -> None:
    reader = AnswerReader()
    outputs = [answer("a", 1), answer("a", 2), answer("abc", 3), answer("abc", 3, "stop")]
    assert [reader.read(output) for output in outputs] == [
        AnswerNews("a", [TokenLogprobs(0, -0.1)], False),
        AnswerNews("", [TokenLogprobs(1, -0.1)], False),
        AnswerNews("bc", [TokenLogprobs(2, -0.1)], False),
        AnswerNews("", [], True),
    ]


@pytest.mark.parametrize("has_logprobs", [True, False])
@pytest.mark.parametrize("finish_reason", [None, "length"])
def test_answer_that_did_not_change_beside_another_has_no_news(has_logprobs: bool, finish_reason: str | None) -> None:
    reader = AnswerReader()
    assert reader.read(answer("a", 1, finish_reason, has_logprobs=has_logprobs)) is not None
    assert reader.read(answer("a", 1, finish_reason, has_logprobs=has_logprobs)) is None
