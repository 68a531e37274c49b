"""One step in the making."""

from __future__ import annotations

from collections.abc import Sequence

from inset.sched.encoder_planner import EncoderPlan
from inset.sched.limits import SchedulerLimits
from inset.sched.request import Request
from inset.step import CachedRequestData, NewRequestData, SchedulerOutput

__all__ = ["StepDraft"]


class StepDraft:
    """What has been put into a step, and what it still has room for.

    Attributes:
        token_budget: Positions that can still be computed.
        encoder_budget: Embeds that encoders can still make.
        scheduled: Request id -> request, in the order of the batch.
        closed_after: Requests that arrived after this one take nothing new of the encoder cache; None closes it for nobody.
    """

    def __init__(self, limits: SchedulerLimits) -> None:
        self.token_budget = limits.max_num_batched_tokens
        self.encoder_budget = limits.encoder_compute_budget
        self.scheduled: dict[str, Request] = {}
        self.closed_after: int | None = None
        self._new: list[NewRequestData] = []
        self._cached: list[CachedRequestData] = []
        self._num_scheduled_tokens: dict[str, int] = {}
        self._encoder_inputs: dict[str, tuple[int, ...]] = {}

    def add_new(self, request: Request, plan: EncoderPlan) -> None:
        """Puts in a request that the worker has to take in."""
        blocks = tuple(request.block_ids)
        self._new.append(NewRequestData(request.data, request.output_token_ids, blocks, request.num_computed_tokens))
        self._add(request, plan.num_tokens, plan)

    def add_prefill(self, request: Request, plan: EncoderPlan) -> None:
        """Puts in a further window of a request that the worker knows."""
        self._cached.append(CachedRequestData(request.request_id, (), request.num_computed_tokens))
        self._add(request, plan.num_tokens, plan)

    def add_decode(self, request: Request, new_block_ids: tuple[int, ...]) -> None:
        """Puts in the newest token of a request that the worker knows."""
        self._cached.append(CachedRequestData(request.request_id, new_block_ids, request.num_computed_tokens))
        self._add(request, 1, None)

    def _add(self, request: Request, num_tokens: int, plan: EncoderPlan | None) -> None:
        self.scheduled[request.request_id] = request
        self._num_scheduled_tokens[request.request_id] = num_tokens
        self.token_budget -= num_tokens
        if plan is not None and plan.run:
            self._encoder_inputs[request.request_id] = plan.run
            self.encoder_budget -= plan.num_run_embeds

    def build(self, *, free_encoder_mm_hashes: Sequence[bytes], finished_req_ids: Sequence[str]) -> SchedulerOutput:
        """Returns the step as the worker reads it."""
        return SchedulerOutput(
            scheduled_new_reqs=self._new,
            scheduled_cached_reqs=self._cached,
            num_scheduled_tokens=self._num_scheduled_tokens,
            scheduled_encoder_inputs=self._encoder_inputs,
            free_encoder_mm_hashes=free_encoder_mm_hashes,
            finished_req_ids=finished_req_ids,
        )
