from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable, Iterator

import pytest

from inset.errors import InvalidRequestError, InvariantError
from inset.inputs import EngineRequest, MultiModalFeature
from inset.sampling_params import SamplingParams
from inset.sched.limits import SchedulerLimits
from inset.sched.scheduler import PASSED_OVER_LIMIT, Scheduler
from inset.step import ModelRunnerOutput, RequestFailure, TokenLogprobs
from inset.testing.scheduler_steps import advance, answer, run_out

MakeLimits = Callable[..., SchedulerLimits]
MakeItem = Callable[..., MultiModalFeature]
MakeRequest = Callable[..., EngineRequest]


# Continuous batching and chunked prefill


def test_a_long_prompt_is_computed_in_windows_and_then_token_by_token(make_limits: MakeLimits, make_request: MakeRequest) -> None:
    scheduler = Scheduler(make_limits(max_num_batched_tokens=10))
    scheduler.add_request(make_request("a", 25, max_tokens=3))
    steps = run_out(scheduler)
    assert [step.num_scheduled_tokens["a"] for step in steps] == [10, 10, 5, 1, 1]
    assert [new.num_computed_tokens for step in steps for new in step.scheduled_new_reqs] == [0]
    assert [cached.num_computed_tokens for step in steps for cached in step.scheduled_cached_reqs] == [10, 20, 25, 26]


def test_decode_tokens_come_before_the_windows_of_prompts(make_limits: MakeLimits, make_request: MakeRequest) -> None:
    scheduler = Scheduler(make_limits(max_num_batched_tokens=10))
    scheduler.add_request(make_request("short", 10, max_tokens=20))
    advance(scheduler)
    scheduler.add_request(make_request("long", 40))
    assert dict(advance(scheduler).num_scheduled_tokens) == {"short": 1, "long": 9}
    scheduler.add_request(make_request("third", 4))
    assert dict(advance(scheduler).num_scheduled_tokens) == {"short": 1, "long": 9}


def test_waiting_requests_fill_what_is_left_in_the_order_of_arrival(make_limits: MakeLimits, make_request: MakeRequest) -> None:
    scheduler = Scheduler(make_limits(max_num_batched_tokens=10))
    for request_id, length in (("a", 4), ("b", 9), ("c", 2)):
        scheduler.add_request(make_request(request_id, length))
    assert dict(advance(scheduler).num_scheduled_tokens) == {"a": 4, "b": 6}
    assert dict(advance(scheduler).num_scheduled_tokens) == {"a": 1, "b": 3, "c": 2}


def test_no_more_than_max_num_seqs_run(make_limits: MakeLimits, make_request: MakeRequest) -> None:
    scheduler = Scheduler(make_limits(max_num_seqs=2))
    for number in range(3):
        scheduler.add_request(make_request(str(number), 4))
    assert list(advance(scheduler).num_scheduled_tokens) == ["0", "1"]
    assert (scheduler.stats.num_running, scheduler.stats.num_waiting) == (2, 1)


def test_without_chunked_prefill_a_prompt_waits_for_a_step_of_its_own_and_gets_it(
    make_limits: MakeLimits, make_request: MakeRequest
) -> None:
    """Decode tokens leave less than the prompt needs; after a few steps they let it go first."""
    scheduler = Scheduler(make_limits(max_num_batched_tokens=20, enable_chunked_prefill=False))
    scheduler.add_request(make_request("decoding", 8, max_tokens=100))
    advance(scheduler)
    scheduler.add_request(make_request("whole", [5] * 20))
    steps = [advance(scheduler) for _ in range(PASSED_OVER_LIMIT + 1)]
    assert [step.num_scheduled_tokens.get("whole") for step in steps] == [None] * PASSED_OVER_LIMIT + [20]


# Stops and outputs


def test_an_output_carries_token_stop_logprobs_and_times(make_limits: MakeLimits, make_request: MakeRequest, make_item: MakeItem) -> None:
    ticks: Iterator[float] = iter([1.0, 3.0, 6.0, 10.0])
    scheduler = Scheduler(make_limits(), clock=lambda: next(ticks))
    params = SamplingParams(stop_token_ids=(9,), logprobs=0)
    scheduler.add_request(make_request("a", 10, [make_item("A", 0, 5)], sampling_params=params))
    logprobs = TokenLogprobs(1, -0.5)
    (first,) = answer(scheduler.schedule(), scheduler, logprobs={"a": logprobs}, encode_seconds=0.25)
    assert (first.new_token_ids, first.finish_reason, first.logprobs) == ((1,), None, (logprobs,))
    assert first.stage_seconds == {"queue": 2.0, "encode": 0.25, "prefill": 3.0, "decode_tokens": 0.0}
    (last,) = answer(scheduler.schedule(), scheduler, 9)
    assert (last.new_token_ids, last.finish_reason, last.stop_reason) == ((9,), "stop", 9)
    assert last.stage_seconds["decode_tokens"] == 4.0
    assert not scheduler.has_unfinished_requests()


def test_an_answer_ends_at_the_context_length(make_limits: MakeLimits, make_request: MakeRequest) -> None:
    scheduler = Scheduler(make_limits(max_model_len=12))
    scheduler.add_request(make_request("a", 10, max_tokens=50))
    run_out(scheduler)
    scheduler.add_request(make_request("b", 10, max_tokens=50))
    assert answer(scheduler.schedule(), scheduler)[0].finish_reason is None
    assert answer(scheduler.schedule(), scheduler)[0].finish_reason == "length"


def test_a_finished_request_is_told_to_the_worker_even_when_nothing_runs(make_limits: MakeLimits, make_request: MakeRequest) -> None:
    scheduler = Scheduler(make_limits())
    scheduler.add_request(make_request("a", 10, max_tokens=1))
    run_out(scheduler)
    assert scheduler.has_news_for_worker()
    step = scheduler.schedule()
    assert (step.finished_req_ids, step.total_num_scheduled_tokens) == (["a"], 0)
    assert not scheduler.has_news_for_worker()


def test_an_id_may_come_again_as_soon_as_it_has_ended(make_limits: MakeLimits, make_request: MakeRequest) -> None:
    scheduler = Scheduler(make_limits())
    scheduler.add_request(make_request("a", 10))
    with pytest.raises(InvalidRequestError, match="'a' is running"):
        scheduler.add_request(make_request("a", 10))
    step = scheduler.schedule()
    scheduler.abort_request("a")
    scheduler.add_request(make_request("a", 20))
    assert answer(step, scheduler) == [], "the token belongs to the aborted request"
    step = scheduler.schedule()
    assert step.finished_req_ids == ["a"]
    assert step.scheduled_new_reqs[0].request.prompt_token_ids == list(range(100, 120))


# Prefix caching


def test_a_repeated_prompt_computes_its_last_block_alone_and_runs_no_encoder(
    make_limits: MakeLimits, make_request: MakeRequest, make_item: MakeItem
) -> None:
    scheduler = Scheduler(make_limits())
    scheduler.add_request(make_request("a", 16, [make_item("A", 2, 8)], max_tokens=1))
    run_out(scheduler)
    scheduler.add_request(make_request("b", 16, [make_item("A", 2, 8)], max_tokens=1))
    step = scheduler.schedule()
    assert dict(step.num_scheduled_tokens) == {"b": 4}
    assert step.scheduled_new_reqs[0].num_computed_tokens == 12
    assert step.scheduled_encoder_inputs == {}
    assert answer(step, scheduler)[0].num_cached_tokens == 12
    assert (scheduler.stats.num_prefix_queries, scheduler.stats.num_prefix_hits) == (32, 12)


def test_resetting_the_prefix_cache_says_whether_it_was_idle(make_limits: MakeLimits, make_request: MakeRequest) -> None:
    scheduler = Scheduler(make_limits())
    scheduler.add_request(make_request("a", 16, max_tokens=1))
    assert scheduler.reset_prefix_cache()
    step = scheduler.schedule()
    assert not scheduler.reset_prefix_cache()
    answer(step, scheduler)
    scheduler.add_request(make_request("b", 16))
    assert scheduler.schedule().scheduled_new_reqs[0].num_computed_tokens == 0


# Items


# Preemption


def test_the_request_that_arrived_last_is_preempted_and_comes_back_with_its_tokens(
    make_limits: MakeLimits, make_request: MakeRequest
) -> None:
    scheduler = Scheduler(make_limits(num_blocks=8, enable_prefix_caching=False))
    for request_id in "ab":
        scheduler.add_request(make_request(request_id, 8, max_tokens=12))
    steps = run_out(scheduler)
    returns = [new for step in steps for new in step.scheduled_new_reqs if new.output_token_ids]
    assert [new.request.request_id for new in returns] == ["b"]
    assert returns[0].num_computed_tokens == 0
    assert scheduler.stats.num_preemptions == 1
    first_gone = next(step for step in steps if step.finished_req_ids)
    assert first_gone.finished_req_ids == ["b"]
    assert "b" not in first_gone.num_scheduled_tokens


def test_a_preempted_request_finds_its_own_blocks_again(make_limits: MakeLimits, make_request: MakeRequest) -> None:
    scheduler = Scheduler(make_limits(num_blocks=8))
    scheduler.add_request(make_request("a", [1] * 8, max_tokens=12))
    scheduler.add_request(make_request("b", [2] * 8, max_tokens=12))
    steps = run_out(scheduler)
    returns = [new for step in steps for new in step.scheduled_new_reqs if new.output_token_ids]
    assert returns[0].num_computed_tokens > 0


# Failures and aborts


def test_a_failure_ends_one_request_and_frees_all_that_it_held(
    make_limits: MakeLimits, make_request: MakeRequest, make_item: MakeItem
) -> None:
    scheduler = Scheduler(make_limits())
    scheduler.add_request(make_request("bad", 10, [make_item("A", 0, 5), make_item("B", 5, 5, item_index=1)]))
    scheduler.add_request(make_request("good", 10, [make_item("C", 0, 5)]))
    failure = RequestFailure("The encoder failed.", "image", 0)
    outputs = answer(scheduler.schedule(), scheduler, failures={"bad": failure})
    assert [(out.request_id, out.finish_reason, out.failure) for out in outputs] == [("bad", "error", failure), ("good", None, None)]
    assert outputs[0].new_token_ids == ()
    scheduler.audit()
    assert scheduler.stats.num_encoder_cache_embeds == 5
    step = scheduler.schedule()
    assert set(step.free_encoder_mm_hashes) == {make_item(name, 0, 1).mm_hash for name in "AB"}
    assert step.finished_req_ids == ["bad"]


def test_an_item_of_an_earlier_step_that_a_failure_blames_is_forgotten(
    make_limits: MakeLimits, make_request: MakeRequest, make_item: MakeItem
) -> None:
    scheduler = Scheduler(make_limits(max_num_batched_tokens=8))
    scheduler.add_request(make_request("bad", 16, [make_item("A", 2, 12)]))
    assert dict(advance(scheduler).scheduled_encoder_inputs) == {"bad": (0,)}
    step = scheduler.schedule()
    assert dict(step.scheduled_encoder_inputs) == {}
    answer(step, scheduler, failures={"bad": RequestFailure("Its output is gone.", "image", 0)})
    assert scheduler.stats.num_encoder_cache_embeds == 0
    assert scheduler.schedule().free_encoder_mm_hashes == (make_item("A", 0, 1).mm_hash,)


def test_blocks_of_a_failed_step_are_never_found(make_limits: MakeLimits, make_request: MakeRequest) -> None:
    scheduler = Scheduler(make_limits())
    scheduler.add_request(make_request("a", 16))
    answer(scheduler.schedule(), scheduler, failures={"a": RequestFailure("No.")})
    scheduler.add_request(make_request("b", 16))
    assert scheduler.schedule().scheduled_new_reqs[0].num_computed_tokens == 0


def test_a_request_without_a_token_fails_alone(make_limits: MakeLimits, make_request: MakeRequest) -> None:
    scheduler = Scheduler(make_limits())
    for request_id in "ab":
        scheduler.add_request(make_request(request_id, 10))
    outputs = scheduler.update(scheduler.schedule(), ModelRunnerOutput(sampled_token_ids={"b": 1}))
    assert [out.finish_reason for out in outputs] == ["error", None]


@pytest.mark.parametrize("num_steps", [0, 1, 2, 5])
@pytest.mark.parametrize("is_in_flight", [False, True])
def test_an_abort_at_any_time_frees_everything(
    num_steps: int, is_in_flight: bool, make_limits: MakeLimits, make_request: MakeRequest, make_item: MakeItem
) -> None:
    scheduler = Scheduler(make_limits(max_num_batched_tokens=8))
    scheduler.add_request(make_request("a", 24, [make_item("A", 2, 12)]))
    for _ in range(num_steps):
        advance(scheduler)
    step = scheduler.schedule() if is_in_flight else None
    scheduler.abort_request("a")
    scheduler.abort_request("a")
    scheduler.abort_request("never seen")
    if step is not None:
        assert answer(step, scheduler) == []
    scheduler.audit()
    assert not scheduler.has_unfinished_requests()
    assert scheduler.stats.num_used_blocks == 0
    assert scheduler.schedule().finished_req_ids == (["a"] if num_steps or is_in_flight else [])


# Order of calls


def test_a_second_step_before_the_update_is_an_invariant_error(make_limits: MakeLimits, make_request: MakeRequest) -> None:
    scheduler = Scheduler(make_limits())
    scheduler.add_request(make_request("a", 10))
    step = scheduler.schedule()
    with pytest.raises(InvariantError, match="1 requests is still out"):
        scheduler.schedule()
    answer(step, scheduler)
    with pytest.raises(InvariantError, match="1 requests, the one that is out 0"):
        answer(step, scheduler)


def test_audit_tells_of_a_request_that_is_in_no_list(make_limits: MakeLimits, make_request: MakeRequest) -> None:
    scheduler = Scheduler(make_limits())
    scheduler.add_request(make_request("a", 10))
    scheduler._books.waiting.clear()
    with pytest.raises(InvariantError, match="1 requests are known, 0 run and 0 wait"):
        scheduler.audit()


def test_the_scheduler_loads_neither_torch_nor_numpy() -> None:
    code = "import sys, inset.sched.scheduler, inset.sched.encoder_budget; sys.exit(bool({'torch', 'numpy'} & set(sys.modules)))"
    assert subprocess.run([sys.executable, "-c", code], timeout=60, check=False).returncode == 0
