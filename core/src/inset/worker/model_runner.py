"""Carries out what the scheduler decided for a step: encoders, splicing, the text model, the next tokens."""

from __future__ import annotations

import logging
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import torch

from inset.errors import InvariantError
from inset.inputs import MODALITIES
from inset.modeling.forward_context import forward_context
from inset.modeling.interfaces import ModelAdapter
from inset.step import ModelRunnerOutput, NewRequestData, RequestFailure, SchedulerOutput, TokenLogprobs
from inset.worker.decode_workspace import DecodeWorkspace
from inset.worker.encoder_cache import EncoderCache, EncoderCacheStats
from inset.worker.encoder_runner import EncoderReport, EncoderRunner
from inset.worker.input_batch import RequestState, StepInputs, StepSlice, pack
from inset.worker.item_rows import gather_rows
from inset.worker.kv_cache import PagedKVCache
from inset.worker.sampler import sample
from inset.worker.splice import SpliceRun, place, splice
from inset.worker.step_attention import StepAttention

if TYPE_CHECKING:
    import numpy as np

    from inset.inputs import EngineRequest, MultiModalFeature

__all__ = ["ModelRunner", "ModelRunnerStats"]

_LOG = logging.getLogger(__name__)

_GIB: Final = 1024**3


@dataclass(frozen=True, slots=True)
class ModelRunnerStats:
    """Counters since start, and what is held now.

    Attributes:
        num_steps: Steps with at least one position.
        num_tokens: Positions computed.
        num_encoder_runs: Items whose encoder ran.
        num_requests: Requests known now.
        num_workspace_rows: Rows of the decode workspace in use.
        encoder_cache: What the encoder cache holds.
    """

    num_steps: int
    num_tokens: int
    num_encoder_runs: int
    num_requests: int
    num_workspace_rows: int
    encoder_cache: EncoderCacheStats


class ModelRunner:
    """The worker of one model on one device; it owns weights, KV cache and encoder cache, and is used by one thread.

    Args:
        adapter: The loaded model.
        device: Where it runs.
        dtype: Type of its activations.
        block_size: Positions in one KV block.
        num_blocks: KV blocks.
        max_num_seqs: Most requests in one step.
        max_model_len: Longest request, in tokens.
        workspace_bytes: Bound of the decode workspace; 0 does without, None is 1 GiB on a CPU and none elsewhere.
    """

    def __init__(
        self,
        adapter: ModelAdapter,
        *,
        device: torch.device,
        dtype: torch.dtype,
        block_size: int,
        num_blocks: int,
        max_num_seqs: int,
        max_model_len: int,
        workspace_bytes: int | None = None,
    ) -> None:
        self._adapter = adapter
        self._device = device
        self._dtype = dtype
        self._cache = PagedKVCache(adapter.attention_layers, num_blocks=num_blocks, block_size=block_size, dtype=dtype, device=device)
        if workspace_bytes is None:
            workspace_bytes = _GIB if device.type == "cpu" else 0
        self._workspace = DecodeWorkspace(self._cache, max_num_rows=max_num_seqs, max_length=max_model_len, max_bytes=workspace_bytes)
        self._encoder_cache = EncoderCache()
        self._encoder = EncoderRunner(adapter, self._encoder_cache, device=device, dtype=dtype)
        self._requests: dict[str, RequestState] = {}
        self._num_steps = 0
        self._num_tokens = 0
        self._num_encoder_runs = 0

    @property
    def stats(self) -> ModelRunnerStats:
        """A snapshot of the counters."""
        return ModelRunnerStats(
            self._num_steps,
            self._num_tokens,
            self._num_encoder_runs,
            len(self._requests),
            self._workspace.num_rows_in_use,
            self._encoder_cache.stats,
        )

    def reset_encoder_cache(self) -> None:
        """Forgets all encoder outputs; the scheduler must forget them too, before the next step."""
        self._encoder_cache.clear()

    @torch.inference_mode()
    def execute(self, scheduled: SchedulerOutput) -> ModelRunnerOutput:
        """Runs one step.

        Raises:
            InvariantError: The scheduler spoke of a request that is not known, or of positions that it does not have.
        """
        self._take_over(scheduled)
        encoded = self._run_encoders(scheduled)
        slices = self._slices(scheduled.num_scheduled_tokens)
        gathered = gather_rows(slices, self._encoder_cache, encoded.failures)
        slices = [piece for piece in slices if piece.request_id in gathered.runs]
        started = time.perf_counter()
        computed = self._compute(slices, gathered.runs) if slices else _Computed({}, {}, {})
        self._num_encoder_runs += encoded.num_runs
        return ModelRunnerOutput(
            sampled_token_ids=computed.token_ids,
            logprobs=computed.logprobs,
            failures=gathered.failures | computed.failures,
            num_encoder_runs=encoded.num_runs,
            encode_seconds=encoded.seconds,
            forward_seconds=time.perf_counter() - started if slices else 0.0,
        )

    def _take_over(self, scheduled: SchedulerOutput) -> None:
        for request_id in scheduled.finished_req_ids:
            self._requests.pop(request_id, None)
            self._workspace.release(request_id)
        for mm_hash in scheduled.free_encoder_mm_hashes:
            self._encoder_cache.drop(mm_hash)
        for new in scheduled.scheduled_new_reqs:
            self._workspace.release(new.request.request_id)
            self._requests[new.request.request_id] = self._admit(new)
        for known in scheduled.scheduled_cached_reqs:
            self._state(known.request_id).update(known)

    def _admit(self, data: NewRequestData) -> RequestState:
        request = data.request
        state = RequestState.admit(data)
        try:
            state.positions = self._adapter.get_positions(request.prompt_token_ids, _media_of(request))
            if request.prompt_embeds is not None:
                state.prompt_rows = self._prompt_rows(request.prompt_embeds, len(request.prompt_token_ids))
        except Exception as error:
            _LOG.error("a request could not be taken in", exc_info=error)
            state.refusal = RequestFailure(f"The prompt could not be taken in: {type(error).__name__}.")
        return state

    def _prompt_rows(self, given: np.ndarray[Any, Any], num_tokens: int) -> torch.Tensor:
        if given.shape != (num_tokens, self._adapter.hidden_size):
            raise InvariantError(f"prompt_embeds of shape {given.shape} came for {num_tokens} positions of {self._adapter.hidden_size}.")
        return torch.tensor(given, device=self._device, dtype=self._dtype)

    def _state(self, request_id: str) -> RequestState:
        state = self._requests.get(request_id)
        if state is None:
            raise InvariantError(f"The worker does not know the request {request_id!r} that was scheduled.")
        return state

    def _run_encoders(self, scheduled: SchedulerOutput) -> EncoderReport:
        features = [
            self._state(request_id).request.mm_features[index]
            for request_id, indices in scheduled.scheduled_encoder_inputs.items()
            for index in indices
        ]
        return self._encoder.run(features) if features else EncoderReport()

    def _slices(self, num_scheduled_tokens: Mapping[str, int]) -> list[StepSlice]:
        """Returns the slices of the step in the order that `StepAttention` wants."""
        pieces = [StepSlice(self._state(request_id), count) for request_id, count in num_scheduled_tokens.items() if count]
        decoding = {piece.request_id: piece for piece in pieces if piece.is_decode}
        # A window of one token in the middle of a prompt gets no row: the windows behind it are written to blocks alone.
        answering = {request_id: piece for request_id, piece in decoding.items() if piece.gives_token}
        rows = self._workspace.assign_rows(
            {request_id: piece.stop for request_id, piece in answering.items()},
            {request_id: piece.state.block_ids for request_id, piece in answering.items()},
        )
        with_row = [StepSlice(decoding[i].state, 1, row) for i, row in sorted(rows.items(), key=lambda pair: pair[1])]
        without = sorted((piece for i, piece in decoding.items() if i not in rows), key=lambda piece: piece.stop)
        return [*with_row, *without, *(piece for piece in pieces if not piece.is_decode)]

    def _compute(self, slices: Sequence[StepSlice], runs: Mapping[str, Sequence[SpliceRun]]) -> _Computed:
        inputs = pack(slices, self._device)
        self._num_steps += 1
        self._num_tokens += len(inputs.input_ids)
        placed = [
            run._replace(position=start + run.position)
            for piece, start in zip(slices, inputs.starts, strict=True)
            for run in runs[piece.request_id]
        ]
        attention = StepAttention([piece.sequence for piece in slices], self._cache, self._workspace)
        hidden_states = self._forward(inputs, placed, attention)
        failures = self._set_aside_broken(slices, inputs, hidden_states, attention)
        giving = [(index, piece.state) for index, piece in enumerate(slices) if piece.gives_token and piece.request_id not in failures]
        if not giving:
            return _Computed({}, {}, failures)
        last = torch.tensor([inputs.starts[index] + slices[index].num_new_tokens - 1 for index, _ in giving], device=self._device)
        logits = self._adapter.compute_logits(hidden_states[last])
        token_ids, logprobs = sample(logits, [state.sampling for _, state in giving])
        ids = [state.request.request_id for _, state in giving]
        for (_, state), token_id in zip(giving, token_ids, strict=True):
            state.append(token_id)
        kept = {request_id: entry for request_id, entry in zip(ids, logprobs, strict=True) if entry is not None}
        return _Computed(dict(zip(ids, token_ids, strict=True)), kept, failures)

    def _forward(self, inputs: StepInputs, placed: Sequence[SpliceRun], attention: StepAttention) -> torch.Tensor:
        input_ids = inputs.input_ids
        for position, rows, _ in placed:
            input_ids[position : position + len(rows)] = 0  # a placeholder's id can lie outside the embedding table
        embeds, layer_embeds = splice(self._adapter.embed_input_ids(input_ids), placed)
        with forward_context(attention):
            return self._adapter.forward(embeds[None], place(inputs.position_ids, placed), layer_embeds=layer_embeds)

    def _set_aside_broken(
        self, slices: Sequence[StepSlice], inputs: StepInputs, hidden_states: torch.Tensor, attention: StepAttention
    ) -> dict[str, RequestFailure]:
        """Returns the requests whose hidden states are not finite, and wipes what they stored.

        A NaN among stored values would reach others: what is masked is multiplied by zero, and zero times NaN is NaN.
        """
        sums = hidden_states.sum(-1, dtype=torch.float32)
        if bool(sums.isfinite().all()):
            return {}
        failures: dict[str, RequestFailure] = {}
        for piece, start in zip(slices, inputs.starts, strict=True):
            stop = start + piece.num_new_tokens
            if not bool(sums[start:stop].isfinite().all()):
                attention.wipe(start, stop)
                self._workspace.release(piece.request_id)
                failures[piece.request_id] = RequestFailure("The model's values for this request are not finite; check what was sent.")
        return failures


def _media_of(request: EngineRequest) -> Sequence[MultiModalFeature]:
    """Returns the items that have places of their own kind: embeddings that stand for text are at the positions of text."""
    return [feature for feature in request.mm_features if feature.modality in MODALITIES]


class _Computed(NamedTuple):
    """What the text model and the sampler gave; see `ModelRunnerOutput`."""

    token_ids: dict[str, int]
    logprobs: dict[str, TokenLogprobs]
    failures: dict[str, RequestFailure]
