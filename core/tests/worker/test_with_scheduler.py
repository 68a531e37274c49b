"""Scheduler and worker together: whatever the limits force, the tokens stay those of the plain module."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import pytest

from inset.inputs import EngineRequest
from inset.sched.limits import SchedulerLimits
from inset.sched.scheduler import Scheduler
from inset.testing.linear_model import BLOCK_SIZE, LinearAdapter, build_runner, make_feature, make_request
from inset.worker.model_runner import ModelRunner

AnswerCheck = Callable[[Mapping[str, Sequence[int]], Sequence[EngineRequest]], None]

MAX_STEPS = 2000


def make_scheduler(**changes: Any) -> Scheduler:
    options: dict[str, Any] = {
        "max_model_len": 512,
        "max_num_seqs": 16,
        "max_num_batched_tokens": 512,
        "num_blocks": 256,
        "block_size": BLOCK_SIZE,
        "encoder_compute_budget": 512,
        "encoder_cache_size": 512,
        **changes,
    }
    return Scheduler(SchedulerLimits(**options))


def serve(scheduler: Scheduler, runner: ModelRunner, requests: Sequence[EngineRequest]) -> dict[str, list[int]]:
    """Returns the answers, all requests at once; the books are audited after every step."""
    for request in requests:
        scheduler.add_request(request)
    answers: dict[str, list[int]] = {request.request_id: [] for request in requests}
    for _ in range(MAX_STEPS):
        if not scheduler.has_unfinished_requests() and not scheduler.has_news_for_worker():
            return answers
        scheduled = scheduler.schedule()
        output = runner.execute(scheduled)
        if scheduled.num_scheduled_tokens:
            for result in scheduler.update(scheduled, output):
                answers[result.request_id].extend(result.new_token_ids)
        scheduler.audit()
    raise AssertionError(f"no end after {MAX_STEPS} steps")


def crowd(max_tokens: int = 12) -> list[EngineRequest]:
    """Requests with shared and own items, and beginnings that are equal."""
    shared = make_feature(20, [True] * 40, name="shared")
    twin = make_request("twin a", 90, [shared], ignore_eos=True, max_tokens=max_tokens)
    return [
        twin,
        EngineRequest(
            request_id="twin b",
            prompt_token_ids=[*twin.prompt_token_ids[:75], 5, 6, 7],
            mm_features=[shared],
            sampling_params=twin.sampling_params,
        ),
        make_request("text", 130, ignore_eos=True, max_tokens=max_tokens),
        *(
            make_request(
                f"own {i}",
                70 + 9 * i,
                [make_feature(3 + 30 * k, [True] * 12 + [False] + [True] * 12, name=f"{i}.{k}", index=k) for k in range(2)],
                ignore_eos=True,
                max_tokens=max_tokens,
            )
            for i in range(4)
        ),
    ]


@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"enable_prefix_caching": False},
        {"max_num_batched_tokens": 16},
        {"max_num_batched_tokens": 64, "disable_chunked_mm_input": True},
        {"max_num_seqs": 2},
        {"encoder_cache_size": 48, "encoder_compute_budget": 48, "max_num_batched_tokens": 40},
    ],
    ids=["roomy", "no prefixes", "windows of 16", "whole items", "two at a time", "small encoder cache"],
)
def test_answers_equal_the_plain_modules_under_any_limits(
    adapter: LinearAdapter, assert_plain_answers: AnswerCheck, changes: dict[str, Any]
) -> None:
    scheduler, runner, requests = make_scheduler(**changes), build_runner(adapter), crowd()
    assert_plain_answers(serve(scheduler, runner, requests), requests)
    assert (runner.stats.num_requests, runner.stats.num_workspace_rows) == (0, 0)


@pytest.mark.parametrize("window", [1, 2, 3, 5, 8, 9, 10])
@pytest.mark.parametrize("offset", [6, 7, 8])
def test_an_item_may_be_cut_anywhere_also_between_its_separators(
    adapter: LinearAdapter, assert_plain_answers: AnswerCheck, window: int, offset: int
) -> None:
    """Windows that hold separators alone, that end at the item's edge, and that begin behind its last embed."""
    mask = [*[False] * 3, *[True] * 2, *[False] * 5, True, *[False] * 4]
    requests = [
        make_request("cut", 40, [make_feature(offset, mask, name="a"), make_feature(offset + len(mask), mask, name="b", index=1)]),
        make_request("first", 20, [make_feature(0, mask, name="a")]),
        make_request("last", 20, [make_feature(20 - len(mask), mask, name="c")]),
    ]
    scheduler = make_scheduler(max_num_batched_tokens=window, max_num_seqs=1, encoder_compute_budget=3, encoder_cache_size=6)
    assert_plain_answers(serve(scheduler, build_runner(adapter), requests), requests)


def test_one_item_at_different_places_of_a_block_shares_no_block(adapter: LinearAdapter, assert_plain_answers: AnswerCheck) -> None:
    """All of the requests have equal token ids: only the places of the item tell their blocks apart."""
    scheduler, runner = make_scheduler(), build_runner(adapter)
    token_ids = list(make_request("same", 70).prompt_token_ids)
    placed = [[(20, "a")], [(21, "a")], [(20, "b")], [(20, "a")], [(36, "a")], [(20, "a"), (44, "b")], []]
    requests = [
        dataclasses.replace(
            make_request(f"{number}", 70, max_tokens=6),
            prompt_token_ids=token_ids,
            mm_features=[make_feature(offset, [True] * 10, name=name, index=index) for index, (offset, name) in enumerate(items)],
        )
        for number, items in enumerate(placed)
    ]
    for request in requests * 2:
        assert_plain_answers(serve(scheduler, runner, [request]), [request])
    assert runner.stats.num_encoder_runs == 2


def test_answers_survive_preemption(adapter: LinearAdapter, assert_plain_answers: AnswerCheck) -> None:
    scheduler, runner, requests = make_scheduler(num_blocks=17, max_model_len=200), build_runner(adapter), crowd(max_tokens=40)[2:6]
    assert_plain_answers(serve(scheduler, runner, requests), requests)
    assert scheduler.stats.num_preemptions > 0


def test_a_second_request_with_the_same_item_runs_no_encoder(adapter: LinearAdapter, assert_plain_answers: AnswerCheck) -> None:
    scheduler, runner = make_scheduler(), build_runner(adapter)
    feature = make_feature(5, [True] * 40, name="a")
    first, second = make_request("first", 60, [feature]), make_request("second", 60, [feature])
    other = make_request("first", 60, [make_feature(5, [True] * 40, name="b")])
    assert_plain_answers(serve(scheduler, runner, [first]), [first])
    assert_plain_answers(serve(scheduler, runner, [second]), [second])
    assert runner.stats.num_encoder_runs == 1
    assert_plain_answers(serve(scheduler, runner, [other]), [other])
    assert runner.stats.num_encoder_runs == 2


def test_a_failing_item_ends_its_request_and_the_next_one_with_it_tries_again(
    adapter: LinearAdapter, assert_plain_answers: AnswerCheck
) -> None:
    scheduler, runner = make_scheduler(), build_runner(adapter)
    guilty = make_feature(5, [True] * 10, name="guilty", fill=13)
    good = make_request("good", 40, [make_feature(5, [True] * 10, name="good")])
    assert_plain_answers(serve(scheduler, runner, [make_request("bad", 40, [guilty]), good]), [good])
    mended = make_request("mended", 40, [make_feature(5, [True] * 10, name="guilty")])
    assert_plain_answers(serve(scheduler, runner, [mended]), [mended])
