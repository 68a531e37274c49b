"""All that the scheduler keeps account of: requests, KV blocks, encoder outputs."""

from __future__ import annotations

from bisect import insort
from collections.abc import Container
from dataclasses import dataclass

from inset.errors import InvariantError
from inset.sched.encoder_cache_manager import EncoderCacheManager
from inset.sched.encoder_planner import EncoderPlan
from inset.sched.kv_cache_manager import KVCacheManager
from inset.sched.limits import SchedulerLimits
from inset.sched.request import Request

__all__ = ["Books", "SchedulerStats"]


@dataclass(frozen=True, slots=True, kw_only=True)
class SchedulerStats:
    """Where the scheduler stands, and what it has counted since the start.

    Attributes:
        num_running: Requests that the worker knows.
        num_waiting: Requests that wait, preempted ones included.
        num_used_blocks: KV blocks in use.
        num_blocks: KV blocks in all.
        num_prefix_queries: Positions looked for in the prefix cache.
        num_prefix_hits: Positions found there.
        num_encoder_cache_embeds: Embeds in the encoder cache.
        encoder_cache_size: Embeds that it holds at most.
        num_encoder_cache_hits: Items that were needed and found there.
        num_encoder_runs: Items whose encoder was scheduled.
        num_preemptions: How often a request had to give back its blocks.
    """

    num_running: int
    num_waiting: int
    num_used_blocks: int
    num_blocks: int
    num_prefix_queries: int
    num_prefix_hits: int
    num_encoder_cache_embeds: int
    encoder_cache_size: int
    num_encoder_cache_hits: int
    num_encoder_runs: int
    num_preemptions: int


def _arrival(request: Request) -> int:
    return request.arrival


class Books:
    """Moves requests between their states; every move takes or gives back all that belongs to it. No policy.

    A request is in one list at a time::

        add ──> waiting ──admit──> running ──end──> gone
                   ^                  │
                   └─────preempt──────┘

    Attributes:
        kv: Blocks of running requests.
        encoder: Encoder outputs and who holds them.
        requests: All requests by id.
        waiting: Those that the worker does not know, in the order of arrival.
        running: Those that it knows, in the order of arrival.
        passed_over: Those that found no room for an item or a whole prompt when it was their turn, and were not scheduled since.
        finished_req_ids: Those that the worker has to forget and was not told of yet.
    """

    def __init__(self, limits: SchedulerLimits) -> None:
        self.kv = KVCacheManager(
            num_blocks=limits.num_blocks, block_size=limits.block_size, enable_prefix_caching=limits.enable_prefix_caching
        )
        self.encoder = EncoderCacheManager(limits.encoder_cache_size)
        self.requests: dict[str, Request] = {}
        self.waiting: list[Request] = []
        self.running: list[Request] = []
        self.passed_over: dict[str, Request] = {}
        self.finished_req_ids: list[str] = []
        self._num_encoder_runs = 0
        self._num_preemptions = 0

    def add(self, request: Request) -> None:
        """Lets a request wait; it arrived after all others."""
        self.requests[request.request_id] = request
        self.waiting.append(request)

    def admit(self, request: Request, prefix: list[int], *, now: float) -> None:
        """Moves a waiting request to the running ones and gives it blocks for all its tokens, beginning with the found `prefix`."""
        self.kv.admit(request, prefix)
        self.waiting.remove(request)
        insort(self.running, request, key=_arrival)
        request.is_running = True
        if request.times.scheduled is None:
            request.times.scheduled = now
            request.num_cached_tokens = request.num_computed_tokens

    def preempt_last(self, scheduled: Container[str]) -> Request:
        """Takes everything from the running request that arrived last and is not `scheduled` in this step, and lets it wait again."""
        victim = next(request for request in reversed(self.running) if request.request_id not in scheduled)
        self._release(victim)
        victim.rewind()
        self.running.remove(victim)
        insort(self.waiting, victim, key=_arrival)
        self.finished_req_ids.append(victim.request_id)
        self._num_preemptions += 1
        return victim

    def take_items(self, request: Request, plan: EncoderPlan) -> None:
        """References the items that a window needs, and makes room for those that it runs; the request is no longer passed over."""
        if plan.needed:
            self.encoder.take(request.request_id, request.items, plan)
            self._num_encoder_runs += len(plan.run)
        request.num_passed_over = 0
        self.passed_over.pop(request.request_id, None)

    def pass_over(self, request: Request) -> None:
        """Notes that it was a request's turn and it found no room for an item or a whole prompt."""
        self.passed_over[request.request_id] = request

    def age_passed_over(self) -> None:
        """Counts a step for all that are passed over, also for those whose turn did not come because others took the whole step."""
        for request in self.passed_over.values():
            request.num_passed_over += 1

    def end(self, request: Request) -> None:
        """Takes everything from a request and forgets it."""
        self._release(request)
        del self.requests[request.request_id]
        self.passed_over.pop(request.request_id, None)
        if request.is_running:
            self.running.remove(request)
            self.finished_req_ids.append(request.request_id)
        else:
            self.waiting.remove(request)

    def _release(self, request: Request) -> None:
        self.kv.free(request)
        self.encoder.release_all(request.request_id)

    @property
    def stats(self) -> SchedulerStats:
        """A snapshot."""
        return SchedulerStats(
            num_running=len(self.running),
            num_waiting=len(self.waiting),
            num_used_blocks=self.kv.num_used_blocks,
            num_blocks=self.kv.pool.num_blocks,
            num_prefix_queries=self.kv.num_prefix_queries,
            num_prefix_hits=self.kv.num_prefix_hits,
            num_encoder_cache_embeds=self.encoder.num_used_embeds,
            encoder_cache_size=self.encoder.size,
            num_encoder_cache_hits=self.encoder.num_hits,
            num_encoder_runs=self._num_encoder_runs,
            num_preemptions=self._num_preemptions,
        )

    def audit(self) -> None:
        """Checks blocks and references against the requests that run.

        Raises:
            InvariantError: They do not add up; the numbers are in the message.
        """
        self.kv.pool.audit([request.block_ids for request in self.running])
        self.encoder.audit([request.request_id for request in self.running])
        listed = [*self.running, *self.waiting]
        if len(listed) != len(self.requests) or {id(r) for r in listed} != {id(r) for r in self.requests.values()}:
            raise InvariantError(
                f"{len(self.requests)} requests are known, {len(self.running)} run and {len(self.waiting)} wait: one is lost or double."
            )
