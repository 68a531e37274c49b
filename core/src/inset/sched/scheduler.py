"""Decides what every step computes."""

from __future__ import annotations

import time
from collections.abc import Callable
from enum import Enum, auto
from typing import Final

from inset.errors import InvalidRequestError, InvariantError
from inset.inputs import EngineRequest
from inset.outputs import EngineOutput
from inset.sched.admission import check_admission
from inset.sched.books import Books, SchedulerStats
from inset.sched.encoder_planner import NO_ROOM, EncoderPlan, EncoderRoom, plan_encoder_inputs
from inset.sched.limits import SchedulerLimits
from inset.sched.request import Request
from inset.sched.step_draft import StepDraft
from inset.sched.step_result import failed_output, share_encode_seconds, token_output
from inset.sched.stop_check import check_stop
from inset.step import ModelRunnerOutput, RequestFailure, SchedulerOutput

__all__ = ["PASSED_OVER_LIMIT", "Scheduler", "SchedulerLimits", "SchedulerStats"]

PASSED_OVER_LIMIT: Final = 4
"""Steps that a request may be passed over for want of room before those behind it have to wait for it."""


class _Admission(Enum):
    ADMITTED = auto()
    NO_BLOCKS = auto()
    PASSED_OVER = auto()


class Scheduler:
    """Continuous batching with chunked prefill, prefix caching and an encoder cache; books only, no tensors. For one thread.

    The loop around it is ``step = scheduler.schedule(); output = worker.execute(step); scheduler.update(step, output)``. Requests may be
    added and aborted between any two calls.

    The order within a step: the request that was passed over too often, if there is one; the newest token of every running request;
    windows of running prompts, in the order of arrival; waiting requests, in the order of arrival.
    """

    def __init__(self, limits: SchedulerLimits, *, clock: Callable[[], float] = time.monotonic) -> None:
        self._limits = limits
        self._clock = clock
        self._books = Books(limits)
        self._in_flight: dict[str, Request] = {}  # those of the step between schedule and update
        self._num_arrivals = 0

    @property
    def stats(self) -> SchedulerStats:
        """A snapshot."""
        return self._books.stats

    def check_admission(self, request: EngineRequest) -> None:
        """Refuses a request that could never run; changes nothing. See `inset.sched.admission.check_admission` for the errors."""
        check_admission(request, self._limits)

    def add_request(self, request: EngineRequest) -> None:
        """Lets a request wait for its turn.

        Raises:
            InvalidRequestError: A request with this id is waiting or running, or the request could never run (see `check_admission`).
            InvariantError: Its placeholders overlap, or lie outside the prompt.
        """
        if request.request_id in self._books.requests:
            raise InvalidRequestError(f"A request with the id {request.request_id!r} is running: choose another one.", stage="queue")
        self.check_admission(request)
        self._num_arrivals += 1
        max_request_tokens = self._limits.max_request_tokens
        self._books.add(Request(request, arrival=self._num_arrivals, max_request_tokens=max_request_tokens, now=self._clock()))

    def abort_request(self, request_id: str) -> None:
        """Ends a request and frees all that it holds, at any time; an unknown id changes nothing. No output follows."""
        request = self._books.requests.get(request_id)
        if request is not None:
            self._books.end(request)

    def has_unfinished_requests(self) -> bool:
        """A request waits or runs."""
        return bool(self._books.requests)

    def has_news_for_worker(self) -> bool:
        """The worker holds requests or encoder outputs that it may drop; the next step tells it, even one without tokens."""
        return bool(self._books.finished_req_ids) or self._books.encoder.has_freed

    def reset_prefix_cache(self) -> bool:
        """Forgets all cached blocks; running requests go on with theirs, unseen by others. Returns whether no block was in use."""
        self._books.kv.reset_prefix_cache(self._books.running)
        return self._books.kv.num_used_blocks == 0

    def reset_encoder_cache(self) -> None:
        """Drops all encoder outputs; a request in the middle of an item has it made again."""
        self._books.encoder.reset()

    def audit(self) -> None:
        """Checks all books against the requests that run; when none does, blocks and references have to be back at zero.

        Raises:
            InvariantError: They do not add up; the numbers are in the message.
        """
        self._books.audit()

    def schedule(self) -> SchedulerOutput:
        """Returns the next step; a step without tokens means that nothing runs or waits, and needs no `update`.

        Raises:
            InvariantError: The step before has not been given to `update`.
        """
        if self._in_flight:
            raise InvariantError(f"A step of {len(self._in_flight)} requests is still out: update has to come before the next schedule.")
        draft = StepDraft(self._limits)
        first = self._schedule_most_passed_over(draft)
        self._schedule_decodes(draft)
        self._schedule_prefills(draft)
        self._admit_waiting(draft, first)
        self._books.age_passed_over()
        self._in_flight = draft.scheduled
        finished, self._books.finished_req_ids = self._books.finished_req_ids, []
        return draft.build(free_encoder_mm_hashes=self._books.encoder.take_freed(), finished_req_ids=finished)

    def _schedule_most_passed_over(self, draft: StepDraft) -> Request | None:
        """Puts the first request that was passed over too often before all others, and returns it.

        If it still finds no room in the encoder cache, the cache is closed to those that arrived later: what they hold runs out, and the
        room becomes free; text goes on. It is not closed while the request lacks blocks, because those that hold the blocks must get on.
        """
        aged = [request for request in self._books.passed_over.values() if request.num_passed_over >= PASSED_OVER_LIMIT]
        first = min(aged, key=lambda request: request.arrival, default=None)
        if first is None:
            return None
        if first.is_running:
            is_passed_over = not self._schedule_prefill(first, draft)
        else:
            is_passed_over = self._has_free_seat() and self._admit(first, draft) is _Admission.PASSED_OVER
        if is_passed_over:
            draft.closed_after = first.arrival
        return first

    def _schedule_decodes(self, draft: StepDraft) -> None:
        for request in list(self._books.running):
            if draft.token_budget == 0:
                break
            if not request.is_decoding or not request.is_running or request.request_id in draft.scheduled:
                continue
            new_block_ids = self._books.kv.grow(request)
            while new_block_ids is None and self._books.preempt_last(draft.scheduled) is not request:
                new_block_ids = self._books.kv.grow(request)
            if new_block_ids is not None:
                draft.add_decode(request, new_block_ids)

    def _schedule_prefills(self, draft: StepDraft) -> None:
        for request in self._books.running:
            if draft.token_budget == 0:
                break
            if not request.is_decoding and request.request_id not in draft.scheduled:
                self._schedule_prefill(request, draft)

    def _schedule_prefill(self, request: Request, draft: StepDraft) -> bool:
        plan = self._plan(request, request.num_computed_tokens, draft)
        if plan.num_tokens == 0:
            self._books.pass_over(request)
            return False
        self._books.take_items(request, plan)
        draft.add_prefill(request, plan)
        return True

    def _admit_waiting(self, draft: StepDraft, first: Request | None) -> None:
        for request in list(self._books.waiting) if self._has_free_seat() else ():
            if draft.token_budget == 0 or not self._has_free_seat():
                break
            if request is first:
                if draft.closed_after is None:
                    break  # it lacks blocks, and nobody behind it may take them
            elif self._admit(request, draft) is _Admission.NO_BLOCKS:
                break

    def _has_free_seat(self) -> bool:
        return len(self._books.running) < self._limits.max_num_running

    def _admit(self, request: Request, draft: StepDraft) -> _Admission:
        prefix = self._books.kv.find_prefix(request)
        if not self._books.kv.has_room(request, prefix, num_reserved=len(self._books.running)):
            return _Admission.NO_BLOCKS
        plan = self._plan(request, len(prefix) * self._limits.block_size, draft)
        if plan.num_tokens == 0:
            self._books.pass_over(request)
            return _Admission.PASSED_OVER
        self._books.admit(request, prefix, now=self._clock())
        self._books.take_items(request, plan)
        draft.add_new(request, plan)
        return _Admission.ADMITTED

    def _plan(self, request: Request, start: int, draft: StepDraft) -> EncoderPlan:
        """Returns the window that begins at `start`, as long as budgets, items and the rules of cutting allow."""
        stop = min(request.num_tokens, start + draft.token_budget)
        if not request.items or start >= request.num_prompt_tokens:
            plan = EncoderPlan(stop - start)
        else:
            room, is_chunking_items = self._room(request, draft), not self._limits.disable_chunked_mm_input
            plan = plan_encoder_inputs(request.items, start, stop, room=room, is_chunking_items=is_chunking_items)
        # Where prompts are not cut, only what follows the prompt, after preemption, may be left for a later step.
        least = 0 if self._limits.enable_chunked_prefill else request.num_prompt_tokens
        return plan if start + plan.num_tokens >= least else EncoderPlan(0)

    def _room(self, request: Request, draft: StepDraft) -> EncoderRoom:
        if draft.closed_after is None or request.arrival <= draft.closed_after:
            return self._books.encoder.room(draft.encoder_budget)
        # Who runs may use what is held anyway, and so comes to its end; a newcomer would hold it longer, and the next one longer still.
        return self._books.encoder.closed_room() if request.is_running else NO_ROOM

    def update(self, scheduled: SchedulerOutput, output: ModelRunnerOutput) -> list[EngineOutput]:
        """Takes in what a step gave, ends what is done, and returns one output for each request with a token or an end.

        Requests that were aborted since the step was made are left out. A request that gets no token where one is due fails alone.

        Raises:
            InvariantError: The step is not the one that `schedule` gave last.
        """
        if scheduled.num_scheduled_tokens.keys() != self._in_flight.keys():
            raise InvariantError(
                f"The step has {len(scheduled.num_scheduled_tokens)} requests, the one that is out {len(self._in_flight)}."
            )
        in_flight, self._in_flight = self._in_flight, {}
        now = self._clock()
        share_encode_seconds(in_flight, scheduled, output.encode_seconds)
        outputs: list[EngineOutput] = []
        for request_id, num_tokens in scheduled.num_scheduled_tokens.items():
            request, failure = in_flight[request_id], output.failures.get(request_id)
            if failure is not None:
                self._drop_failed_items(request, scheduled, failure)
            if self._books.requests.get(request_id) is not request:
                continue
            result = self._advance(request, num_tokens, output=output, now=now) if failure is None else self._fail(request, failure)
            if result is not None:
                outputs.append(result)
        return outputs

    def _drop_failed_items(self, request: Request, scheduled: SchedulerOutput, failure: RequestFailure) -> None:
        """Forgets the encoder outputs that a failed request was to make, and the one that it blames: they may not exist."""
        for index in scheduled.scheduled_encoder_inputs.get(request.request_id, ()):
            self._books.encoder.drop(request.items[index].mm_hash)
        for item in request.items:
            if (item.modality, item.item_index) == (failure.modality, failure.item_index):
                self._books.encoder.drop(item.mm_hash)

    def _advance(self, request: Request, num_tokens: int, *, output: ModelRunnerOutput, now: float) -> EngineOutput | None:
        request.num_computed_tokens += num_tokens
        self._books.kv.register_computed(request)
        self._books.encoder.release_passed(request.request_id, request.items, request.num_computed_tokens)
        if request.num_computed_tokens < request.num_tokens:
            return None
        token_id = output.sampled_token_ids.get(request.request_id)
        if token_id is None:
            return self._fail(request, RequestFailure("The worker gave no token for this request."))
        request.token_ids.append(token_id)
        request.times.note_token(now)
        stop = check_stop(request)
        if stop is not None:
            self._books.end(request)
        return token_output(request, token_id, stop=stop, logprobs=output.logprobs.get(request.request_id))

    def _fail(self, request: Request, failure: RequestFailure) -> EngineOutput:
        self._books.end(request)
        return failed_output(request, failure)
