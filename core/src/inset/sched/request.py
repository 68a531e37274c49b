"""One request as the scheduler sees it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from inset.inputs import EngineRequest, MultiModalFeature
from inset.sched.block_hash import hash_root

__all__ = ["Request", "RequestTimes"]


@dataclass(slots=True)
class RequestTimes:
    """When a request came to its stages, on the scheduler's clock, in seconds.

    Attributes:
        added: It was added.
        transfer: Seconds between its handing over by the front end and `added`, or None where the front end does not say.
        scheduled: It was first scheduled, or None.
        first_token: Its first token came out, or None.
        last_token: Its latest token came out, or None.
        encode_seconds: Its share, by embeds, of the time that encoders took in the steps that ran its items.
    """

    added: float
    transfer: float | None = None
    scheduled: float | None = None
    first_token: float | None = None
    last_token: float | None = None
    encode_seconds: float = 0.0

    def note_token(self, now: float) -> None:
        """Records that a token came out."""
        self.last_token = now
        if self.first_token is None:
            self.first_token = now

    def stage_seconds(self) -> dict[str, float]:
        """Returns the seconds of the stages that happened: ``transfer``, ``queue``, ``encode``, ``prefill``, ``decode_tokens``.

        ``prefill`` reaches from the first step to the first token and contains ``encode``; ``decode_tokens`` reaches from the first to
        the latest token and contains a recomputation after preemption.
        """
        if self.scheduled is None:
            return {}
        stages = {} if self.transfer is None else {"transfer": self.transfer}
        stages["queue"] = self.scheduled - self.added
        if self.encode_seconds:
            stages["encode"] = self.encode_seconds
        if self.first_token is not None and self.last_token is not None:
            stages["prefill"] = self.first_token - self.scheduled
            stages["decode_tokens"] = self.last_token - self.first_token
        return stages


class Request:
    """Progress and property of one request, mutable. Only the scheduler and its managers change it.

    Attributes:
        data: The request as it came.
        request_id: Its id.
        items: Its items, ascending and disjoint.
        arrival: Place in the order of arrival; the smaller, the higher its priority, also after preemption.
        token_ids: Prompt and output so far.
        num_prompt_tokens: Length of the prompt, in tokens.
        max_tokens_total: Prompt and answer together never exceed this, in tokens.
        num_computed_tokens: Positions whose keys and values lie in `block_ids`.
        block_ids: KV blocks that it uses, in the order of positions; the KVCacheManager fills and empties it.
        root_hash: Parent of its first block's name, 32 bytes.
        block_hashes: Names of its full blocks, as far as they were asked for.
        num_registered_blocks: How many of its blocks were offered to the prefix cache.
        is_cacheable: Its blocks may be found by others, and others' by it.
        num_cached_tokens: Prompt positions that the prefix cache held when it was first scheduled.
        num_passed_over: Steps that it has been waiting since it found no room for an item, or for a whole prompt.
        is_running: The worker knows it.
        times: When it came to its stages.
    """

    __slots__ = (
        "arrival",
        "block_hashes",
        "block_ids",
        "data",
        "is_cacheable",
        "is_running",
        "items",
        "max_tokens_total",
        "num_cached_tokens",
        "num_computed_tokens",
        "num_passed_over",
        "num_prompt_tokens",
        "num_registered_blocks",
        "request_id",
        "root_hash",
        "times",
        "token_ids",
    )

    def __init__(self, data: EngineRequest, *, arrival: int, max_request_tokens: int, now: float) -> None:
        self.data = data
        self.request_id = data.request_id
        self.items: Sequence[MultiModalFeature] = data.mm_features
        self.arrival = arrival
        self.token_ids = list(data.prompt_token_ids)
        self.num_prompt_tokens = len(self.token_ids)
        max_tokens = data.sampling_params.max_tokens
        self.max_tokens_total = min(max_request_tokens, self.num_prompt_tokens + (max_request_tokens if max_tokens is None else max_tokens))
        self.num_computed_tokens = 0
        self.block_ids: list[int] = []
        self.root_hash = hash_root(data.cache_salt, data.prompt_embeds_hash)
        self.block_hashes: list[bytes] = []
        self.num_registered_blocks = 0
        # Embeddings without a digest have no name that a block could be found by.
        self.is_cacheable = data.prompt_embeds is None or data.prompt_embeds_hash is not None
        self.num_cached_tokens = 0
        self.num_passed_over = 0
        self.is_running = False
        handed_over = data.arrival_time_seconds
        self.times = RequestTimes(added=now, transfer=max(0.0, now - handed_over) if handed_over else None)

    @property
    def num_tokens(self) -> int:
        """Prompt and output so far, in tokens."""
        return len(self.token_ids)

    @property
    def num_output_tokens(self) -> int:
        """Generated tokens."""
        return len(self.token_ids) - self.num_prompt_tokens

    @property
    def output_token_ids(self) -> tuple[int, ...]:
        """Generated tokens, oldest first."""
        return tuple(self.token_ids[self.num_prompt_tokens :])

    @property
    def is_decoding(self) -> bool:
        """Only its newest token is not computed yet."""
        return self.num_computed_tokens >= self.num_prompt_tokens and self.num_computed_tokens == len(self.token_ids) - 1

    def rewind(self) -> None:
        """Forgets all that was computed; its blocks have been freed. Output tokens stay and are computed again like a prompt."""
        self.num_computed_tokens = 0
        self.num_registered_blocks = 0
        self.is_running = False
