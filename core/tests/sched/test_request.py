from __future__ import annotations

from collections.abc import Callable

import pytest

from inset.inputs import EngineRequest
from inset.sched.request import Request, RequestTimes


@pytest.fixture
def request_state(make_request: Callable[..., EngineRequest]) -> Request:
    return Request(make_request("r", 5), arrival=1, max_request_tokens=100, now=0.0)


def test_a_request_decodes_when_only_its_newest_token_is_left(request_state: Request) -> None:
    assert not request_state.is_decoding
    request_state.num_computed_tokens = 4
    assert not request_state.is_decoding, "the last position of a prompt may belong to an item"
    request_state.num_computed_tokens = 5
    request_state.token_ids.append(1)
    assert request_state.is_decoding


def test_rewinding_keeps_the_output(request_state: Request) -> None:
    request_state.token_ids += [1, 2]
    request_state.num_computed_tokens = 6
    request_state.rewind()
    assert (request_state.num_computed_tokens, request_state.output_token_ids) == (0, (1, 2))
    assert not request_state.is_decoding


def test_stages_that_did_not_happen_are_absent() -> None:
    times = RequestTimes(added=1.0)
    assert times.stage_seconds() == {}
    times.scheduled = 3.0
    assert times.stage_seconds() == {"queue": 2.0}
    times.note_token(7.0)
    times.note_token(8.5)
    times.encode_seconds = 0.5
    assert times.stage_seconds() == {"queue": 2.0, "encode": 0.5, "prefill": 4.0, "decode_tokens": 1.5}


@pytest.mark.parametrize(("handed_over", "expected"), [(0.0, {}), (7.5, {"transfer": 2.5}), (10.5, {"transfer": 0.0})])
def test_transfer_is_told_where_the_front_end_says_when_it_handed_over(handed_over: float, expected: dict[str, float]) -> None:
    data = EngineRequest(request_id="a", prompt_token_ids=(1,), arrival_time_seconds=handed_over)
    times = Request(data, arrival=0, max_request_tokens=9, now=10.0).times
    times.scheduled = 10.0
    assert times.stage_seconds() == {**expected, "queue": 0.0}
