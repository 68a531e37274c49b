"""Whatever a caller hands over becomes plain values in range, or an error that names the option."""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np
import pytest

from inset.engine.wire import decode_frames, encode_frames
from inset.errors import InvalidRequestError
from inset.sampling_params import SamplingParams

INTEGERS = ["n", "top_k", "seed", "max_tokens", "min_tokens", "logprobs"]
NUMBERS = ["temperature", "top_p", "min_p", "presence_penalty", "frequency_penalty", "repetition_penalty"]
SWITCHES = ["include_stop_str_in_output", "ignore_eos", "skip_special_tokens"]


def refused(name: str, value: Any) -> None:
    with pytest.raises(InvalidRequestError, match=f"^{name} must") as caught:
        SamplingParams(**{name: value})
    assert (caught.value.status, caught.value.parameter) == (400, name)


def test_every_option_is_looked_at() -> None:
    names = {field.name for field in dataclasses.fields(SamplingParams)}
    assert names == {*INTEGERS, *NUMBERS, *SWITCHES, "stop", "stop_token_ids", "logit_bias"}


@pytest.mark.parametrize("name", INTEGERS)
@pytest.mark.parametrize("value", [1.5, "1", [1], float("nan"), 2**64, 10**30, -(10**30)])
def test_what_is_no_integer_is_refused(name: str, value: Any) -> None:
    refused(name, value)


@pytest.mark.parametrize("name", NUMBERS)
@pytest.mark.parametrize("value", ["1", None, [1.0], float("nan"), float("inf"), -float("inf"), 1j])
def test_what_is_no_number_is_refused(name: str, value: Any) -> None:
    refused(name, value)


@pytest.mark.parametrize("name", SWITCHES)
@pytest.mark.parametrize("value", ["true", None, 2])
def test_what_is_no_switch_is_refused(name: str, value: Any) -> None:
    refused(name, value)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("n", 0),
        ("n", 129),
        ("temperature", -0.1),
        ("top_p", 0),
        ("top_p", 1.1),
        ("top_k", -2),
        ("min_p", 1.1),
        ("presence_penalty", 2.1),
        ("frequency_penalty", -2.1),
        ("repetition_penalty", 0),
        ("repetition_penalty", 1e-300),
        ("max_tokens", 0),
        ("min_tokens", -1),
        ("min_tokens", 17),
        ("logprobs", 21),
        ("stop", ["x"] * 129),
        ("stop_token_ids", [1] * 16_385),
        ("logit_bias", dict.fromkeys(range(16_385), 1.0)),
        ("stop", 5),
        ("stop", [""]),
        ("stop", [b"x"]),
        ("stop", ["\ud800"]),
        ("stop_token_ids", "12"),
        ("stop_token_ids", [1.5]),
        ("stop_token_ids", [-1]),
        ("logit_bias", {-1: 1}),
        ("logit_bias", [1]),
        ("logit_bias", {"a": 1}),
        ("logit_bias", {1: "a"}),
        ("logit_bias", {1: float("nan")}),
        ("logit_bias", {1: 101}),
    ],
)
def test_what_is_out_of_range_is_refused(name: str, value: Any) -> None:
    refused(name, value)


def test_values_of_other_libraries_become_plain_ones_that_can_travel() -> None:
    params = SamplingParams(
        n=np.int64(2),  # type: ignore[arg-type]
        temperature=np.float32(0.5),  # type: ignore[arg-type]
        top_k=np.uint8(7),  # type: ignore[arg-type]
        seed=np.uint64(2**64 - 1),  # type: ignore[arg-type]
        stop=["a", "b"],  # type: ignore[arg-type]
        stop_token_ids=np.array([3, 4]),  # type: ignore[arg-type]
        logit_bias={np.int32(5): np.float64(1.5)},  # type: ignore[dict-item]
    )
    assert params == SamplingParams(
        n=2, temperature=0.5, top_k=7, seed=2**64 - 1, stop=("a", "b"), stop_token_ids=(3, 4), logit_bias={5: 1.5}
    )
    assert decode_frames([bytes(frame) for frame in encode_frames(params)]) == params


def test_none_is_no_stop_text_and_a_text_is_one() -> None:
    assert SamplingParams(stop=None, stop_token_ids=None, logit_bias=None) == SamplingParams()  # type: ignore[arg-type]
    assert SamplingParams(stop="ab").stop == ("ab",)  # type: ignore[arg-type]
