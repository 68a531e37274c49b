"""Limits, items, requests and a worker without a model, for tests of the scheduler."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, field, replace
from hashlib import sha256
from typing import Any

import pytest

from inset.inputs import EngineRequest, ItemPlan, MultiModalFeature, PlaceholderRange
from inset.sampling_params import SamplingParams
from inset.sched.limits import SchedulerLimits
from inset.step import ModelRunnerOutput, RequestFailure, SchedulerOutput

EOS = 7


def _make_limits(**changes: Any) -> SchedulerLimits:
    limits = SchedulerLimits(
        max_model_len=256,
        max_num_seqs=8,
        max_num_batched_tokens=64,
        num_blocks=64,
        block_size=4,
        encoder_compute_budget=64,
        encoder_cache_size=64,
    )
    return replace(limits, **changes)


def _make_item(
    name: str, offset: int, length: int, is_embed: tuple[tuple[int, int], ...] | None = None, **changes: Any
) -> MultiModalFeature:
    place = PlaceholderRange(offset, length, is_embed)
    plan = ItemPlan(num_tokens=length, num_embeds=place.num_embeds, is_embed=is_embed)
    item = MultiModalFeature(
        modality="image", item_index=0, mm_hash=sha256(name.encode()).digest(), placeholder=place, data=None, plan=plan
    )
    return replace(item, **changes)


def _make_request(
    request_id: str, prompt: int | Sequence[int], items: Sequence[MultiModalFeature] = (), *, max_tokens: int | None = 4, **changes: Any
) -> EngineRequest:
    """A request whose prompt is given, or counts up from 100 to the length given."""
    token_ids = list(range(100, 100 + prompt)) if isinstance(prompt, int) else list(prompt)
    params = SamplingParams(max_tokens=max_tokens, temperature=0)
    return replace(EngineRequest(request_id=request_id, prompt_token_ids=token_ids, mm_features=items, sampling_params=params), **changes)


def content_at(request: EngineRequest, token_ids: Sequence[int], position: int, before: int) -> int:
    """What the keys and values of a position depend on, as a number: everything up to it, its token, its row of an item, the salt."""
    row = next(
        ((i.mm_hash, position - i.placeholder.offset) for i in request.mm_features if i.placeholder.offset <= position < i.placeholder.end),
        None,
    )
    return hash((before, token_ids[position], row, request.cache_salt, request.prompt_embeds_hash))


def next_token(content: int) -> int:
    """The token that follows a position: any of 40, `EOS` among them."""
    return content % 40


@dataclass
class _Known:
    request: EngineRequest
    token_ids: list[int]
    block_ids: list[int]
    num_computed_tokens: int


@dataclass
class FakeWorker:
    """Obeys steps as the real worker does, holds numbers for keys and values, and asserts that every step can be obeyed."""

    limits: SchedulerLimits
    known: dict[str, _Known] = field(default_factory=dict)
    encoder_outputs: dict[bytes, int] = field(default_factory=dict)
    slots: dict[int, int] = field(default_factory=dict)
    encoder_runs: list[bytes] = field(default_factory=list)

    def execute(self, step: SchedulerOutput, failing: Collection[bytes] = ()) -> ModelRunnerOutput:
        """Runs a step in which the encoder fails on some items."""
        assert step.total_num_scheduled_tokens <= self.limits.max_num_batched_tokens
        assert len(step.num_scheduled_tokens) <= self.limits.max_num_seqs
        for request_id in step.finished_req_ids:
            del self.known[request_id]
        for mm_hash in step.free_encoder_mm_hashes:
            self.encoder_outputs.pop(mm_hash, None)
        self._take_in(step)
        failures = self._run_encoders(step, failing)
        tokens: dict[str, int] = {}
        for request_id, count in step.num_scheduled_tokens.items():
            failure = failures.get(request_id) or self._find_missing(self.known[request_id], count)
            if failure is not None:
                failures[request_id] = failure
                continue
            self._compute(self.known[request_id], count, tokens)
        return ModelRunnerOutput(sampled_token_ids=tokens, failures=failures)

    def _take_in(self, step: SchedulerOutput) -> None:
        for new in step.scheduled_new_reqs:
            assert new.request.request_id not in self.known
            token_ids = [*new.request.prompt_token_ids, *new.output_token_ids]
            self.known[new.request.request_id] = _Known(new.request, token_ids, list(new.block_ids), new.num_computed_tokens)
        for cached in step.scheduled_cached_reqs:
            self.known[cached.request_id].block_ids += cached.new_block_ids
            assert self.known[cached.request_id].num_computed_tokens == cached.num_computed_tokens
        assert {n.request.request_id for n in step.scheduled_new_reqs} | {c.request_id for c in step.scheduled_cached_reqs} == set(
            step.num_scheduled_tokens
        )

    def _run_encoders(self, step: SchedulerOutput, failing: Collection[bytes]) -> dict[str, RequestFailure]:
        failures: dict[str, RequestFailure] = {}
        num_made = 0
        for request_id, indices in step.scheduled_encoder_inputs.items():
            for index in indices:
                item = self.known[request_id].request.mm_features[index]
                assert item.mm_hash not in self.encoder_outputs, "an item that is there is encoded again"
                num_made += 0 if item.is_embedding else item.num_embeds
                self.encoder_runs.append(item.mm_hash)
                if item.mm_hash in failing:
                    failures[request_id] = RequestFailure("The encoder failed.", item.modality, item.item_index)
                else:
                    self.encoder_outputs[item.mm_hash] = item.num_embeds
        assert num_made <= self.limits.encoder_compute_budget
        assert sum(self.encoder_outputs.values()) <= self.limits.encoder_cache_size
        return failures

    def _find_missing(self, known: _Known, count: int) -> RequestFailure | None:
        start, stop = known.num_computed_tokens, known.num_computed_tokens + count
        for item in known.request.mm_features:
            place = item.placeholder
            num_embeds = place.num_embeds_before(stop - place.offset) - place.num_embeds_before(start - place.offset)
            if num_embeds and item.mm_hash not in self.encoder_outputs:
                return RequestFailure("An encoder output is missing.", item.modality, item.item_index)
        return None

    def _compute(self, known: _Known, count: int, tokens: dict[str, int]) -> None:
        size = self.limits.block_size
        others = {b for other in self.known.values() if other is not known for b in other.block_ids}
        content = 0
        for position in range(known.num_computed_tokens + count):
            content = content_at(known.request, known.token_ids, position, content)
            block_id = known.block_ids[position // size]
            slot = block_id * size + position % size
            if position < known.num_computed_tokens:
                assert self.slots[slot] == content, "a block holds another content than the request needs"
            else:
                assert block_id not in others, "a shared block is written to"
                self.slots[slot] = content
        known.num_computed_tokens += count
        if known.num_computed_tokens == len(known.token_ids):
            tokens[known.request.request_id] = next_token(content)
            known.token_ids.append(next_token(content))


def _expect_tokens(request: EngineRequest, limits: SchedulerLimits) -> list[int]:
    """The answer that a request gets alone, without caches, in one piece."""
    token_ids = list(request.prompt_token_ids)
    params = request.sampling_params
    content = 0
    for position in range(limits.max_request_tokens):
        if position == len(token_ids):
            break
        content = content_at(request, token_ids, position, content)
        if position == len(token_ids) - 1:
            token_ids.append(next_token(content))
            num_output = len(token_ids) - len(request.prompt_token_ids)
            if num_output == params.max_tokens or len(token_ids) == limits.max_request_tokens:
                break
            if num_output >= params.min_tokens and token_ids[-1] in request.eos_token_ids:
                break
    return token_ids[len(request.prompt_token_ids) :]


@pytest.fixture(scope="session")
def make_limits() -> Callable[..., SchedulerLimits]:
    return _make_limits


@pytest.fixture(scope="session")
def make_item() -> Callable[..., MultiModalFeature]:
    return _make_item


@pytest.fixture(scope="session")
def make_request() -> Callable[..., EngineRequest]:
    return _make_request


@pytest.fixture(scope="session")
def make_worker() -> Callable[[SchedulerLimits], FakeWorker]:
    return FakeWorker


@pytest.fixture(scope="session")
def expect_tokens() -> Callable[[EngineRequest, SchedulerLimits], list[int]]:
    return _expect_tokens
