from __future__ import annotations

import pytest

from inset.engine.prepared import resolve_max_tokens, token_types
from inset.errors import PromptTooLongError
from inset.inputs import PlaceholderRange, ProcessedPrompt
from inset.sampling_params import SamplingParams


def test_token_types_tell_modalities_apart_and_leave_separators_out() -> None:
    prompt = ProcessedPrompt(
        prompt_token_ids=range(14),
        mm_placeholders={
            "image": [PlaceholderRange(1, 2), PlaceholderRange(5, 4, ((1, 2), (3, 4)))],
            "video": [PlaceholderRange(3, 1)],
            "audio": [PlaceholderRange(10, 2)],
        },
    )
    assert token_types(prompt) == [0, 1, 1, 2, 0, 0, 1, 0, 1, 0, 3, 3, 0, 0]


@pytest.mark.parametrize(("asked", "num_prompt_tokens", "given"), [(None, 90, 10), (10, 90, 10), (3, 90, 3), (None, 99, 1)])
def test_an_answer_takes_what_the_context_leaves(asked: int | None, num_prompt_tokens: int, given: int) -> None:
    resolved = resolve_max_tokens(SamplingParams(max_tokens=asked), num_prompt_tokens, 100)
    assert resolved is not None
    assert resolved.max_tokens == given


@pytest.mark.parametrize(("asked", "num_prompt_tokens", "said"), [(11, 90, "Ask for at most 10"), (None, 100, "Send less text")])
def test_what_does_not_fit_is_refused_with_the_numbers(asked: int | None, num_prompt_tokens: int, said: str) -> None:
    with pytest.raises(PromptTooLongError, match=said):
        resolve_max_tokens(SamplingParams(max_tokens=asked), num_prompt_tokens, 100)


def test_a_prompt_without_an_answer_needs_room_for_one_token() -> None:
    assert resolve_max_tokens(None, 99, 100) is None
    with pytest.raises(PromptTooLongError):
        resolve_max_tokens(None, 100, 100)
