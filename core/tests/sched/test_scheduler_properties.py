"""Random requests under random limits: everything gets on or is refused, every step can be obeyed, every answer is the right one."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from inset.errors import ItemTooLargeError, PromptTooLongError
from inset.inputs import EngineRequest, MultiModalFeature
from inset.outputs import EngineOutput
from inset.sched.limits import SchedulerLimits
from inset.sched.scheduler import Scheduler

MANY = settings(max_examples=5000, deadline=None, suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large])
FEW = settings(MANY, max_examples=150, derandomize=True, phases=[Phase.generate, Phase.shrink])


@st.composite
def draw_limits(draw: st.DrawFn) -> SchedulerLimits:
    """Limits of two kinds: any at all, where much is refused, and narrow ones that most requests pass but that make them wait."""
    block_size = draw(st.sampled_from([1, 2, 4, 16]))
    is_narrow = draw(st.booleans())
    return SchedulerLimits(
        max_model_len=draw(st.integers(64 if is_narrow else 8, 96)),
        max_num_seqs=draw(st.integers(2 if is_narrow else 1, 6)),
        max_num_batched_tokens=draw(st.integers(2, 16) if is_narrow else st.integers(1, 64)),
        num_blocks=draw(st.integers(6 if is_narrow else max(1, 16 // block_size), 160 // block_size)),
        block_size=block_size,
        encoder_compute_budget=draw(st.integers(14 if is_narrow else 1, 40)),
        encoder_cache_size=draw(st.integers(14, 18) if is_narrow else st.integers(1, 40)),
        enable_prefix_caching=draw(st.booleans()),
        enable_chunked_prefill=is_narrow or draw(st.booleans()),
        disable_chunked_mm_input=draw(st.booleans()),
    )


# Name -> positions, and which of them receive an embedding: an item looks the same wherever it stands.
ITEMS: dict[str, tuple[int, tuple[tuple[int, int], ...] | None]] = {
    "one": (1, None),
    "small": (3, None),
    "rows": (11, ((1, 4), (5, 8), (9, 10))),
    "framed": (9, ((3, 7),)),
    "middle": (14, None),
    "large": (30, None),
}


@pytest.fixture(scope="session")
def draw_request(make_item: Callable[..., MultiModalFeature], make_request: Callable[..., EngineRequest]) -> Callable[..., EngineRequest]:
    def draw_one(draw: st.DrawFn, request_id: str) -> EngineRequest:
        prompt: list[int] = []
        items: list[MultiModalFeature] = []
        for name in draw(st.lists(st.sampled_from([*ITEMS, "text", "text"]), min_size=1, max_size=5)):
            if name == "text":
                prompt += [draw(st.sampled_from([50, 100]))] * draw(st.integers(1, 20))
            else:
                length, is_embed = ITEMS[name]
                is_embedding = name == "framed"
                items.append(make_item(name, len(prompt), length, is_embed, item_index=len(items), is_embedding=is_embedding))
                prompt += [50] * length
        salt = draw(st.sampled_from([None, None, "tenant"]))
        return make_request(request_id, prompt, items, max_tokens=draw(st.integers(1, 24)), eos_token_ids=(7,), cache_salt=salt)

    return draw_one


class _Run:
    """A scheduler and a worker that run until all requests have ended, with arrivals and aborts on the way."""

    def __init__(self, limits: SchedulerLimits, worker: Any) -> None:
        self.scheduler = Scheduler(limits)
        self.worker = worker
        self.tokens: dict[str, list[int]] = defaultdict(list)
        self.finished: dict[str, str] = {}

    def add(self, request: EngineRequest) -> bool:
        try:
            self.scheduler.add_request(request)
        except (PromptTooLongError, ItemTooLargeError):
            return False
        return True

    def step(self, abort: str | None = None, failing: tuple[bytes, ...] = ()) -> None:
        step = self.scheduler.schedule()
        self.scheduler.audit()
        assert step.total_num_scheduled_tokens > 0 or not self.scheduler.has_unfinished_requests(), "nothing gets on"
        output = self.worker.execute(step, failing)
        if abort is not None:
            self.scheduler.abort_request(abort)
        outputs = self.scheduler.update(step, output)
        assert failing or all(out.finish_reason != "error" for out in outputs), "an earlier failure still does harm"
        self.note(outputs)
        self.scheduler.audit()

    def note(self, outputs: list[EngineOutput]) -> None:
        for output in outputs:
            assert output.request_id not in self.finished, "a request that has ended speaks"
            self.tokens[output.request_id] += output.new_token_ids
            if output.finish_reason is not None:
                self.finished[output.request_id] = output.finish_reason

    def run_out(self, max_steps: int) -> None:
        for _ in range(max_steps):
            if not self.scheduler.has_unfinished_requests():
                break
            self.step()
        assert not self.scheduler.has_unfinished_requests(), "a request starves"
        self.scheduler.audit()
        assert self.scheduler.stats.num_used_blocks == 0
        assert self.scheduler.has_news_for_worker() == bool(self.worker.known or self.scheduler._books.encoder.has_freed)
        self.worker.execute(self.scheduler.schedule())
        assert not self.worker.known


@given(data=st.data())
@FEW
def test_every_request_gets_its_own_answer_or_is_refused(
    data: st.DataObject, make_worker: Any, draw_request: Any, expect_tokens: Any
) -> None:
    check_answers(data, make_worker, draw_request, expect_tokens)


@pytest.mark.soak
@given(data=st.data())
@MANY
def test_every_one_of_many_requests_gets_its_own_answer_or_is_refused(
    data: st.DataObject, make_worker: Any, draw_request: Any, expect_tokens: Any
) -> None:
    check_answers(data, make_worker, draw_request, expect_tokens)


def check_answers(data: st.DataObject, make_worker: Any, draw_request: Any, expect_tokens: Any) -> None:
    limits = data.draw(draw_limits())
    run = _Run(limits, make_worker(limits))
    added: dict[str, EngineRequest] = {}
    for number in range(data.draw(st.integers(1, 8))):
        request = draw_request(data.draw, str(number))
        if run.add(request):
            added[request.request_id] = request
        for _ in range(data.draw(st.integers(0, 3))):
            run.step()
    run.run_out(50 * sum(len(r.prompt_token_ids) + 24 for r in added.values()) + 10)
    assert set(run.finished) == set(added)
    for request_id, request in added.items():
        assert run.tokens[request_id] == expect_tokens(request, limits)


@given(data=st.data())
@FEW
def test_aborts_resets_and_encoder_failures_leave_clean_books_and_right_answers_for_the_others(
    data: st.DataObject, make_worker: Any, draw_request: Any, expect_tokens: Any
) -> None:
    check_accidents(data, make_worker, draw_request, expect_tokens)


@pytest.mark.soak
@given(data=st.data())
@MANY
def test_many_aborts_resets_and_encoder_failures_leave_clean_books_and_right_answers_for_the_others(
    data: st.DataObject, make_worker: Any, draw_request: Any, expect_tokens: Any
) -> None:
    check_accidents(data, make_worker, draw_request, expect_tokens)


def check_accidents(data: st.DataObject, make_worker: Any, draw_request: Any, expect_tokens: Any) -> None:
    limits = data.draw(draw_limits())
    run = _Run(limits, make_worker(limits))
    added: dict[str, EngineRequest] = {}
    aborted: set[str] = set()
    for number in range(data.draw(st.integers(2, 8))):
        request = draw_request(data.draw, str(number))
        if run.add(request):
            added[request.request_id] = request
        for _ in range(data.draw(st.integers(0, 3))):
            event = data.draw(st.sampled_from(["none", "none", "abort", "abort in flight", "reset", "fail"]))
            victim = data.draw(st.sampled_from(sorted(added))) if added and event.startswith("abort") else None
            if victim is not None and victim not in run.finished:
                aborted.add(victim)
            if event == "abort" and victim is not None:
                run.scheduler.abort_request(victim)
            if event == "reset":
                run.scheduler.reset_prefix_cache()
                run.scheduler.reset_encoder_cache()
            failing = [item.mm_hash for item in request.mm_features] if event == "fail" else []
            run.step(victim if event == "abort in flight" else None, tuple(failing))
    run.run_out(50 * sum(len(r.prompt_token_ids) + 24 for r in added.values()) + 10)
    assert set(run.finished) | aborted == set(added)
    for request_id, reason in run.finished.items():
        expected = expect_tokens(added[request_id], limits)
        assert run.tokens[request_id] == (expected if reason != "error" else expected[: len(run.tokens[request_id])])
