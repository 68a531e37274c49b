"""Options of a request are checked where they are made, so that none of them can reach the engine and harm it."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from inset.errors import InvalidRequestError
from inset.sampling_params import SamplingParams


@pytest.mark.parametrize(
    "wrong",
    [
        {"n": 0},
        {"n": 1.5},
        {"temperature": -1},
        {"temperature": "hot"},
        {"temperature": float("nan")},
        {"top_p": 0},
        {"top_k": -2},
        {"top_k": 2.0},
        {"min_p": 2},
        {"presence_penalty": 3},
        {"frequency_penalty": None},
        {"repetition_penalty": 0},
        {"logit_bias": {1: 101}},
        {"logit_bias": {1: "much"}},
        {"logit_bias": {-1: 1}},
        {"logit_bias": {"1": 1}},
        {"seed": "a"},
        {"stop": ("",)},
        {"stop": (1,)},
        {"stop_token_ids": ("a",)},
        {"stop_token_ids": (-1,)},
        {"ignore_eos": "no"},
        {"max_tokens": 0},
        {"min_tokens": 17},
        {"logprobs": 21},
        {"logprobs": "2"},
        {"skip_special_tokens": 1},
    ],
    ids=str,
)
def test_a_value_of_a_wrong_kind_or_out_of_range_is_refused_by_name(wrong: dict[str, Any]) -> None:
    with pytest.raises(InvalidRequestError) as caught:
        SamplingParams(**wrong)
    assert caught.value.parameter in wrong


def test_one_stop_text_nothing_and_numbers_of_numpy_are_taken_as_they_are_meant() -> None:
    values: dict[str, Any] = {
        "stop": "end",
        "stop_token_ids": None,
        "logit_bias": None,
        "seed": np.int64(3),
        "temperature": np.float32(0.5),
    }
    params = SamplingParams(**values)
    assert (params.stop, params.stop_token_ids, params.logit_bias) == (("end",), (), {})
