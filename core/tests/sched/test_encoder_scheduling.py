"""Items in the scheduler's steps: encoded once, within the budget, in turn, and none of them starved."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from inset.errors import ItemTooLargeError
from inset.inputs import EngineRequest, MultiModalFeature
from inset.sched.limits import SchedulerLimits
from inset.sched.scheduler import PASSED_OVER_LIMIT, Scheduler
from inset.step import RequestFailure
from inset.testing.scheduler_steps import advance, answer, run_out

MakeLimits = Callable[..., SchedulerLimits]
MakeItem = Callable[..., MultiModalFeature]
MakeRequest = Callable[..., EngineRequest]


def test_the_time_of_encoders_is_shared_by_embeds(make_limits: MakeLimits, make_request: MakeRequest, make_item: MakeItem) -> None:
    scheduler = Scheduler(make_limits())
    scheduler.add_request(make_request("a", 10, [make_item("A", 0, 9)]))
    scheduler.add_request(make_request("b", 10, [make_item("B", 0, 3)]))
    scheduler.add_request(make_request("c", 10))
    outputs = answer(scheduler.schedule(), scheduler, encode_seconds=1.2)
    assert [out.stage_seconds.get("encode") for out in outputs] == [pytest.approx(0.9), pytest.approx(0.3), None]


@pytest.mark.parametrize("is_dropped", [False, True])
def test_a_hit_that_ends_inside_an_item_uses_its_output_or_has_it_made_again(
    is_dropped: bool, make_limits: MakeLimits, make_request: MakeRequest, make_item: MakeItem
) -> None:
    scheduler = Scheduler(make_limits())
    scheduler.add_request(make_request("a", 16, [make_item("A", 2, 12)], max_tokens=1))
    run_out(scheduler)
    if is_dropped:
        scheduler.reset_encoder_cache()
    scheduler.add_request(make_request("b", [*range(100, 110), *[50] * 10], [make_item("A", 2, 12)], max_tokens=1))
    step = advance(scheduler)
    assert step.scheduled_new_reqs[0].num_computed_tokens == 8
    assert dict(step.scheduled_encoder_inputs) == ({"b": (0,)} if is_dropped else {})


def test_one_item_in_many_requests_of_a_step_is_encoded_once(
    make_limits: MakeLimits, make_request: MakeRequest, make_item: MakeItem
) -> None:
    scheduler = Scheduler(make_limits(max_num_seqs=16, max_num_batched_tokens=256, num_blocks=256))
    for number in range(16):
        scheduler.add_request(make_request(str(number), 10, [make_item("A", 1, 4), make_item("A", 5, 4, item_index=1)]))
    step = advance(scheduler)
    assert len(step.num_scheduled_tokens) == 16
    assert dict(step.scheduled_encoder_inputs) == {"0": (0,)}
    assert (scheduler.stats.num_encoder_runs, scheduler.stats.num_encoder_cache_hits) == (1, 31)
    assert scheduler.stats.num_encoder_cache_embeds == 4


def test_a_window_is_cut_before_an_item_without_budget_and_goes_on_in_the_next_step(
    make_limits: MakeLimits, make_request: MakeRequest, make_item: MakeItem
) -> None:
    scheduler = Scheduler(make_limits(encoder_compute_budget=8, encoder_cache_size=12))
    scheduler.add_request(make_request("a", 24, [make_item("A", 2, 8), make_item("B", 12, 8)]))
    steps = [advance(scheduler) for _ in range(2)]
    assert [step.num_scheduled_tokens["a"] for step in steps] == [12, 12]
    assert [dict(step.scheduled_encoder_inputs) for step in steps] == [{"a": (0,)}, {"a": (1,)}]
    assert [list(step.free_encoder_mm_hashes) for step in steps] == [[], [make_item("A", 0, 1).mm_hash]]


def test_a_running_request_whose_next_item_finds_no_budget_is_left_out_of_the_step(
    make_limits: MakeLimits, make_request: MakeRequest, make_item: MakeItem
) -> None:
    scheduler = Scheduler(make_limits(encoder_compute_budget=8, max_num_batched_tokens=64))
    scheduler.add_request(make_request("a", 20, [make_item("A", 1, 8), make_item("C", 9, 8, item_index=1)]))
    scheduler.add_request(make_request("b", 12, [make_item("B", 2, 8)]))
    assert [dict(advance(scheduler).num_scheduled_tokens) for _ in range(3)] == [{"a": 9, "b": 2}, {"a": 11}, {"a": 1, "b": 10}]


def test_an_uncut_item_that_decode_tokens_crowd_out_goes_first_in_the_end(
    make_limits: MakeLimits, make_request: MakeRequest, make_item: MakeItem
) -> None:
    scheduler = Scheduler(make_limits(max_num_batched_tokens=20, disable_chunked_mm_input=True))
    scheduler.add_request(make_request("decoding", 8, max_tokens=100))
    advance(scheduler)
    scheduler.add_request(make_request("item", 24, [make_item("A", 0, 20)]))
    steps = [advance(scheduler) for _ in range(PASSED_OVER_LIMIT + 1)]
    assert [step.num_scheduled_tokens.get("item") for step in steps] == [None] * PASSED_OVER_LIMIT + [20]


@pytest.mark.parametrize("crowd", ["many items", "one item in many requests", "one request with many items"])
def test_small_items_overtake_a_huge_one_for_a_few_steps_and_then_wait_for_it(
    crowd: str, make_limits: MakeLimits, make_request: MakeRequest, make_item: MakeItem
) -> None:
    """The huge item takes the whole cache; windows of 8 and small items of 13 are such that one of these begins before another ends."""
    scheduler = Scheduler(make_limits(max_num_batched_tokens=8, encoder_cache_size=32, num_blocks=200, enable_prefix_caching=False))

    def add_small(number: int) -> None:
        count = 15 if crowd == "one request with many items" and number == 1 else 1
        name = "small" if crowd == "one item in many requests" else f"small {number}"
        items = [make_item(f"{name} {place}", 13 * place, 13, item_index=place) for place in range(count)]
        scheduler.add_request(make_request(f"small {number}", [5] * 13 * count, items, max_tokens=1))

    add_small(0)
    advance(scheduler)
    scheduler.add_request(make_request("huge", 40, [make_item("huge", 0, 32)], max_tokens=1))
    overtaking = 0
    for number in range(1, 60):
        add_small(number)
        step = advance(scheduler)
        if "huge" in step.scheduled_encoder_inputs:
            break
        overtaking += len(step.scheduled_new_reqs)
    assert "huge" in step.scheduled_encoder_inputs
    assert overtaking > 0
    assert number <= PASSED_OVER_LIMIT + 3
    run_out(scheduler, 5000)


def test_text_runs_beside_an_item_that_has_aged(make_limits: MakeLimits, make_request: MakeRequest, make_item: MakeItem) -> None:
    scheduler = Scheduler(make_limits(max_num_batched_tokens=8, encoder_cache_size=32, num_blocks=200))
    scheduler.add_request(make_request("small 0", [5] * 13, [make_item("small 0", 0, 13)], max_tokens=1))
    advance(scheduler)
    scheduler.add_request(make_request("huge", 40, [make_item("huge", 0, 32)], max_tokens=1))
    for number in range(1, PASSED_OVER_LIMIT + 1):
        scheduler.add_request(make_request(f"small {number}", [5] * 13, [make_item(f"small {number}", 0, 13)], max_tokens=1))
        advance(scheduler)
    scheduler.add_request(make_request("text", [6] * 20, max_tokens=1))
    order = [request_id for step in run_out(scheduler) for request_id in step.num_scheduled_tokens]
    assert order.index("text") < order.index("huge") < order.index(f"small {PASSED_OVER_LIMIT}")


def test_nobody_is_taken_in_behind_an_aged_item_that_lacks_blocks(
    monkeypatch: pytest.MonkeyPatch, make_limits: MakeLimits, make_request: MakeRequest, make_item: MakeItem
) -> None:
    """Texts of two blocks each would else keep taking those that become free."""
    monkeypatch.setattr("inset.sched.scheduler.PASSED_OVER_LIMIT", 1)
    scheduler = Scheduler(make_limits(max_num_batched_tokens=16, max_num_seqs=32, encoder_cache_size=32, num_blocks=17))
    scheduler.add_request(make_request("holder", [5] * 24, [make_item("holder", 0, 24)], max_tokens=1))
    advance(scheduler)
    scheduler.add_request(make_request("huge", 40, [make_item("huge", 0, 32)], max_tokens=1))
    for number in range(4):
        scheduler.add_request(make_request(f"text {number}", [number] * 2, max_tokens=6))
    assert dict(advance(scheduler).num_scheduled_tokens) == {"holder": 8, "text 0": 2, "text 1": 2, "text 2": 2, "text 3": 2}
    for number in range(4, 60):
        scheduler.add_request(make_request(f"text {number}", [number] * 2, max_tokens=6))
        newcomers = [new.request.request_id for new in advance(scheduler).scheduled_new_reqs]
        if newcomers:
            break
    assert newcomers[0] == "huge"


def test_a_refused_item_names_the_numbers_and_takes_nothing(
    make_limits: MakeLimits, make_request: MakeRequest, make_item: MakeItem
) -> None:
    scheduler = Scheduler(make_limits(encoder_cache_size=9))
    with pytest.raises(ItemTooLargeError, match="10 embeds and the encoder cache holds 9"):
        scheduler.add_request(make_request("a", 20, [make_item("A", 0, 10)]))
    assert not scheduler.has_unfinished_requests()


def test_resetting_the_encoder_cache_in_the_middle_of_an_item_has_it_made_again(
    make_limits: MakeLimits, make_request: MakeRequest, make_item: MakeItem
) -> None:
    scheduler = Scheduler(make_limits(max_num_batched_tokens=8))
    scheduler.add_request(make_request("a", 24, [make_item("A", 2, 20)]))
    advance(scheduler)
    scheduler.reset_encoder_cache()
    step = advance(scheduler)
    assert step.free_encoder_mm_hashes == (make_item("A", 0, 1).mm_hash,)
    assert dict(step.scheduled_encoder_inputs) == {"a": (0,)}


@pytest.mark.parametrize("is_aborted", [False, True])
def test_nobody_references_an_output_that_failed(
    is_aborted: bool, make_limits: MakeLimits, make_request: MakeRequest, make_item: MakeItem
) -> None:
    """Also where the request that was to make it was aborted before the failure was known."""
    scheduler = Scheduler(make_limits())
    scheduler.add_request(make_request("a", 10, [make_item("A", 0, 5)]))
    step = scheduler.schedule()
    if is_aborted:
        scheduler.abort_request("a")
    answer(step, scheduler, failures={"a": RequestFailure("The encoder failed.", "image", 0)})
    scheduler.add_request(make_request("b", [*range(100, 105), *[50] * 5], [make_item("A", 0, 5)]))
    assert dict(scheduler.schedule().scheduled_encoder_inputs) == {"b": (0,)}
