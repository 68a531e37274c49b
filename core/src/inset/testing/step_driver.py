"""Drives a model runner by hand: steps without a scheduler, for tests of adapters and of the worker."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from inset.inputs import EngineRequest
from inset.step import CachedRequestData, ModelRunnerOutput, NewRequestData, RequestFailure, SchedulerOutput
from inset.worker.model_runner import ModelRunner

__all__ = ["StepDriver"]


@dataclass(slots=True)
class _Driven:
    request: EngineRequest
    block_ids: list[int]
    num_computed_tokens: int
    token_ids: list[int] = field(default_factory=list)
    is_known: bool = False
    num_blocks_sent: int = 0

    @property
    def num_tokens(self) -> int:
        return len(self.request.prompt_token_ids) + len(self.token_ids)

    @property
    def is_done(self) -> bool:
        return len(self.token_ids) >= (self.request.sampling_params.max_tokens or 16)


class StepDriver:
    """Gives every request the same window of positions in each step, until each has its `max_tokens`; no token ends an answer.

    Blocks are handed out in a scattered order and never taken back.

    Args:
        runner: What is driven.
        block_size: Positions in one block, as the runner has it.
        num_blocks: Blocks of the runner.
    """

    def __init__(self, runner: ModelRunner, *, block_size: int, num_blocks: int) -> None:
        self._runner = runner
        self._block_size = block_size
        self._free = [block for parity in (1, 0) for block in range(num_blocks) if block % 2 == parity]
        self._driven: dict[str, _Driven] = {}
        self._encoded: set[bytes] = set()
        self._gone: list[str] = []
        self._free_hashes: list[bytes] = []
        self.failures: dict[str, RequestFailure] = {}

    def add(self, request: EngineRequest, *, like: str | None = None, num_computed_tokens: int = 0, blocks: Sequence[int] = ()) -> None:
        """Adds a request; the blocks of its first `num_computed_tokens` are those of the request `like`, the next ones `blocks`."""
        shared = self._driven[like].block_ids[: num_computed_tokens // self._block_size] if like is not None else []
        self._driven[request.request_id] = _Driven(request, [*shared, *blocks], num_computed_tokens)

    def take_back(self, request_id: str) -> list[int]:
        """Forgets a request, and returns its blocks for another one."""
        self._gone.append(request_id)
        return self._driven.pop(request_id).block_ids

    def preempt(self, request_id: str) -> None:
        """Takes a request's blocks away; it starts over in the next step, with the tokens that it has."""
        driven = self._driven[request_id]
        self._gone.append(request_id)
        self._driven[request_id] = _Driven(driven.request, [], 0, driven.token_ids)

    def drop_encoder_output(self, mm_hash: bytes, *, tell_runner: bool = True) -> None:
        """Lets the runner drop an encoder output before the next step; with `tell_runner` off, only this driver believes so."""
        self._encoded.discard(mm_hash)
        if tell_runner:
            self._free_hashes.append(mm_hash)

    def believe_encoded(self, mm_hash: bytes) -> None:
        """Makes this driver believe that the runner holds an output, as a scheduler with wrong books would."""
        self._encoded.add(mm_hash)

    def step(self, window: int) -> ModelRunnerOutput:
        """Runs one step of at most `window` positions per request, and takes its tokens over."""
        running = [d for d in self._driven.values() if not d.is_done and d.request.request_id not in self.failures]
        counts = {d.request.request_id: min(window, d.num_tokens - d.num_computed_tokens) for d in running}
        output = self._runner.execute(self._scheduled(running, counts))
        self.failures.update(output.failures)
        for driven in running:
            request_id = driven.request.request_id
            driven.num_computed_tokens += counts[request_id]
            if request_id in output.sampled_token_ids:
                driven.token_ids.append(output.sampled_token_ids[request_id])
        return output

    def run(self, requests: Sequence[EngineRequest] = (), *, window: int = 10_000) -> dict[str, list[int]]:
        """Adds requests, runs steps until all are done or failed, and returns the answers by request id."""
        for request in requests:
            self.add(request)
        while any(not d.is_done and d.request.request_id not in self.failures for d in self._driven.values()):
            self.step(window)
        return {request_id: driven.token_ids for request_id, driven in self._driven.items()}

    def _scheduled(self, running: Sequence[_Driven], counts: dict[str, int]) -> SchedulerOutput:
        new: list[NewRequestData] = []
        known: list[CachedRequestData] = []
        encoder: dict[str, list[int]] = {}
        for driven in running:
            request_id = driven.request.request_id
            stop = driven.num_computed_tokens + counts[request_id]
            while len(driven.block_ids) * self._block_size < stop:
                driven.block_ids.append(self._free.pop())
            if driven.is_known:
                fresh = tuple(driven.block_ids[driven.num_blocks_sent :])
                known.append(CachedRequestData(request_id, fresh, driven.num_computed_tokens))
            else:
                new.append(NewRequestData(driven.request, tuple(driven.token_ids), tuple(driven.block_ids), driven.num_computed_tokens))
                driven.is_known = True
            driven.num_blocks_sent = len(driven.block_ids)
            wanted = self._wanted(driven, stop)
            if wanted:
                encoder[request_id] = wanted
        gone, self._gone = self._gone, []
        hashes, self._free_hashes = self._free_hashes, []
        return SchedulerOutput(
            scheduled_new_reqs=new,
            scheduled_cached_reqs=known,
            num_scheduled_tokens=counts,
            scheduled_encoder_inputs=encoder,
            free_encoder_mm_hashes=hashes,
            finished_req_ids=gone,
        )

    def _wanted(self, driven: _Driven, stop: int) -> list[int]:
        wanted: list[int] = []
        for index, feature in enumerate(driven.request.mm_features):
            overlaps = feature.placeholder.offset < stop and feature.placeholder.end > driven.num_computed_tokens
            if overlaps and feature.mm_hash not in self._encoded:
                wanted.append(index)
                self._encoded.add(feature.mm_hash)
        return wanted
