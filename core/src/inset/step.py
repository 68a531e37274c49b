"""What scheduler and worker tell each other about one step. No torch, no numpy."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from inset.inputs import EngineRequest

__all__ = [
    "CachedRequestData",
    "ModelRunnerOutput",
    "NewRequestData",
    "RequestFailure",
    "SchedulerOutput",
    "TokenLogprobs",
]


@dataclass(frozen=True, slots=True)
class NewRequestData:
    """A request that the worker sees for the first time, or again after preemption.

    Attributes:
        request: The request with its items.
        output_token_ids: Tokens generated before it was preempted.
        block_ids: KV blocks that it owns, in the order of positions.
        num_computed_tokens: Positions whose keys and values lie in those blocks already.
    """

    request: EngineRequest
    output_token_ids: tuple[int, ...]
    block_ids: tuple[int, ...]
    num_computed_tokens: int


@dataclass(frozen=True, slots=True)
class CachedRequestData:
    """A request that the worker knows.

    Attributes:
        request_id: Its id.
        new_block_ids: KV blocks that it has got since the last step.
        num_computed_tokens: Positions computed before this step.
    """

    request_id: str
    new_block_ids: tuple[int, ...]
    num_computed_tokens: int


@dataclass(frozen=True, slots=True, kw_only=True)
class SchedulerOutput:
    """What the worker does in one step.

    Attributes:
        scheduled_new_reqs: Requests to take in.
        scheduled_cached_reqs: Requests that it knows.
        num_scheduled_tokens: Request id -> positions to compute in this step; the order is the order in the batch.
        scheduled_encoder_inputs: Request id -> indices into its `mm_features` whose encoder runs in this step.
        free_encoder_mm_hashes: Encoder outputs to drop before this step's encoders run.
        finished_req_ids: Requests to forget, preempted ones included, before the new ones are taken in: an id may come again in the same
            step.
    """

    scheduled_new_reqs: Sequence[NewRequestData] = ()
    scheduled_cached_reqs: Sequence[CachedRequestData] = ()
    num_scheduled_tokens: Mapping[str, int] = field(default_factory=dict)
    scheduled_encoder_inputs: Mapping[str, Sequence[int]] = field(default_factory=dict)
    free_encoder_mm_hashes: Sequence[bytes] = ()
    finished_req_ids: Sequence[str] = ()

    @property
    def total_num_scheduled_tokens(self) -> int:
        """Positions computed in this step."""
        return sum(self.num_scheduled_tokens.values())


@dataclass(frozen=True, slots=True)
class TokenLogprobs:
    """Log probabilities at one position.

    Attributes:
        token_id: The chosen token.
        logprob: Its natural logarithm.
        top: (token id, logprob) of the most likely tokens, most likely first.
    """

    token_id: int
    logprob: float
    top: tuple[tuple[int, float], ...] = ()


@dataclass(frozen=True, slots=True)
class RequestFailure:
    """A request that the worker could not go on with.

    Attributes:
        message: What happened, for the client.
        modality: Modality of the item to blame, or None.
        item_index: Its position among the items of that modality, or None.
        code: The `default_code` of the error class that the client gets; None is a fault of ours.
        stage: Where it happened, as in `inset.errors.InsetError`.
    """

    message: str
    modality: str | None = None
    item_index: int | None = None
    code: str | None = None
    stage: str = "generate"


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelRunnerOutput:
    """What came out of one step.

    Attributes:
        sampled_token_ids: Request id -> the next token, for requests whose last known position was computed.
        logprobs: Request id -> log probabilities of that token, where asked for.
        failures: Request id -> why it cannot go on; such a request has no token, and the step of the others is unharmed.
        num_encoder_runs: Items whose encoder ran.
        encode_seconds: Time spent in encoders.
        forward_seconds: Time spent in the language model.
    """

    sampled_token_ids: Mapping[str, int] = field(default_factory=dict)
    logprobs: Mapping[str, TokenLogprobs] = field(default_factory=dict)
    failures: Mapping[str, RequestFailure] = field(default_factory=dict)
    num_encoder_runs: int = 0
    encode_seconds: float = 0.0
    forward_seconds: float = 0.0
