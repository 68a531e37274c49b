"""The requests that the worker knows, and the packed tensors of one step."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import torch

from inset.errors import InvariantError
from inset.inputs import EngineRequest
from inset.modeling.interfaces import PromptPositions
from inset.step import CachedRequestData, NewRequestData, RequestFailure
from inset.worker.sampling_state import SamplingState
from inset.worker.step_attention import SequenceSlice

__all__ = ["RequestState", "StepInputs", "StepSlice", "pack"]


@dataclass(slots=True)
class RequestState:
    """One request that runs, as the worker sees it; mutated by the model runner alone.

    Attributes:
        request: The request.
        sampling: How its tokens are chosen.
        token_ids: Prompt and answer so far.
        block_ids: Its KV blocks.
        num_computed_tokens: Positions whose keys and values are stored.
        positions: Rotary positions of its prompt.
        prompt_rows: ``(num_tokens, hidden_size)`` embeddings given instead of a prompt's tokens, or None.
        refusal: Why it cannot be computed at all, or None.
    """

    request: EngineRequest
    sampling: SamplingState
    token_ids: list[int]
    block_ids: list[int]
    num_computed_tokens: int
    positions: PromptPositions = field(default_factory=lambda: PromptPositions(torch.zeros((1, 0), dtype=torch.int64), 0))
    prompt_rows: torch.Tensor | None = None
    refusal: RequestFailure | None = None

    @classmethod
    def admit(cls, data: NewRequestData) -> RequestState:
        """Takes a request in, for the first time or after preemption."""
        request = data.request
        seed = request.sampling_params.seed
        sampling = SamplingState(
            request.sampling_params,
            seed=request.request_id if seed is None else seed,
            prompt_token_ids=request.prompt_token_ids,
            output_token_ids=data.output_token_ids,
            eos_token_ids=request.eos_token_ids,
        )
        token_ids = [*request.prompt_token_ids, *data.output_token_ids]
        return cls(request, sampling, token_ids, list(data.block_ids), data.num_computed_tokens)

    def update(self, data: CachedRequestData) -> None:
        """Takes over what the scheduler says about a known request."""
        self.block_ids.extend(data.new_block_ids)
        self.num_computed_tokens = data.num_computed_tokens

    def append(self, token_id: int) -> None:
        """Adds a token to the answer."""
        self.token_ids.append(token_id)
        self.sampling.append(token_id)

    def position_ids(self, start: int, stop: int) -> torch.Tensor:
        """Returns ``(num_axes, stop - start)`` int64 rotary positions on the host."""
        prompt = self.positions.positions
        num_prompt = prompt.shape[1]
        if stop <= num_prompt:
            return prompt[:, start:stop]
        first = self.positions.next_position + max(start - num_prompt, 0)
        generated = torch.arange(first, self.positions.next_position + stop - num_prompt).expand(prompt.shape[0], -1)
        return generated if start >= num_prompt else torch.cat([prompt[:, start:], generated], dim=1)


@dataclass(frozen=True, slots=True)
class StepSlice:
    """The positions of one request in a step.

    Attributes:
        state: The request.
        num_new_tokens: Positions to compute.
        row: Its row in the decode workspace, or None.
    """

    state: RequestState
    num_new_tokens: int
    row: int | None = None

    @property
    def request_id(self) -> str:
        """The request's id."""
        return self.state.request.request_id

    @property
    def start(self) -> int:
        """First position in the request."""
        return self.state.num_computed_tokens

    @property
    def stop(self) -> int:
        """The position behind the last one."""
        return self.state.num_computed_tokens + self.num_new_tokens

    @property
    def is_decode(self) -> bool:
        """One position on top of stored ones."""
        return self.num_new_tokens == 1 and self.state.num_computed_tokens > 0

    @property
    def gives_token(self) -> bool:
        """The last known position is computed, so that the next token can be chosen."""
        return self.stop == len(self.state.token_ids)

    @property
    def sequence(self) -> SequenceSlice:
        """The same for the attention."""
        return SequenceSlice(self.start, self.num_new_tokens, self.state.block_ids, self.row)


@dataclass(frozen=True, slots=True)
class StepInputs:
    """The packed batch of one step, on the model's device.

    Attributes:
        input_ids: ``(num_tokens,)`` int64.
        position_ids: ``(num_axes, num_tokens)`` int64.
        starts: Where each slice starts in the batch.
    """

    input_ids: torch.Tensor
    position_ids: torch.Tensor
    starts: tuple[int, ...]


def pack(slices: Sequence[StepSlice], device: torch.device) -> StepInputs:
    """Lays the slices of a step out one behind the other.

    Raises:
        InvariantError: A slice reaches beyond what the request holds in tokens or blocks.
    """
    ids: list[int] = []
    starts: list[int] = []
    for piece in slices:
        if piece.stop > len(piece.state.token_ids) or piece.num_new_tokens < 1:
            raise InvariantError(
                f"Positions {piece.start} to {piece.stop} were scheduled for a request that holds {len(piece.state.token_ids)} tokens."
            )
        starts.append(len(ids))
        ids.extend(piece.state.token_ids[piece.start : piece.stop])
    return StepInputs(
        torch.tensor(ids, dtype=torch.int64, device=device),
        _position_ids(slices).to(device),
        tuple(starts),
    )


def _position_ids(slices: Sequence[StepSlice]) -> torch.Tensor:
    if all(piece.is_decode and piece.start >= piece.state.positions.positions.shape[1] for piece in slices):
        ids = [s.positions.next_position + piece.start - s.positions.positions.shape[1] for piece in slices for s in (piece.state,)]
        return torch.tensor([ids] * slices[0].state.positions.positions.shape[0], dtype=torch.int64)
    return torch.cat([piece.state.position_ids(piece.start, piece.stop) for piece in slices], dim=1)
