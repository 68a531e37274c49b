from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from inset.inputs import EngineRequest
from inset.sampling_params import SamplingParams
from inset.sched.request import Request
from inset.sched.stop_check import Stop, check_stop


@pytest.mark.parametrize(
    ("params", "output", "stop"),
    [
        ({}, [1], None),
        ({}, [1, 7], Stop("stop")),
        ({"ignore_eos": True}, [1, 7], None),
        ({"stop_token_ids": (3,)}, [3], Stop("stop", 3)),
        ({"stop_token_ids": (3,), "ignore_eos": True}, [3], Stop("stop", 3)),
        ({"min_tokens": 3}, [1, 7], None),
        ({"min_tokens": 3, "stop_token_ids": (3,)}, [1, 3], None),
        ({"min_tokens": 3}, [1, 1, 7], Stop("stop")),
        ({"max_tokens": 2}, [1, 1], Stop("length")),
        ({"max_tokens": 2}, [1, 7], Stop("stop")),
        ({"max_tokens": None}, [1] * 9, None),
        ({"max_tokens": None}, [1] * 10, Stop("length")),
        ({"max_tokens": 99}, [1] * 10, Stop("length")),
    ],
)
def test_an_answer_ends_with_a_stop_token_or_at_a_limit(
    params: dict[str, Any], output: list[int], stop: Stop | None, make_request: Callable[..., EngineRequest]
) -> None:
    data = make_request("r", 10, eos_token_ids=(7,), sampling_params=SamplingParams(**{"max_tokens": 16, **params}))
    request = Request(data, arrival=1, max_request_tokens=20, now=0.0)
    request.token_ids += output
    assert check_stop(request) == stop
