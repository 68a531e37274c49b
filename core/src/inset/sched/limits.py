"""How much one step and one engine may hold."""

from __future__ import annotations

from dataclasses import dataclass

from inset.errors import ConfigError

__all__ = ["SchedulerLimits"]


@dataclass(frozen=True, slots=True, kw_only=True)
class SchedulerLimits:
    """Every number that the scheduler obeys; resolved from `EngineConfig`, the checkpoint and the memory at hand.

    Attributes:
        max_model_len: Longest prompt and answer together, in tokens.
        max_num_seqs: Most requests that run at one time.
        max_num_batched_tokens: Most positions computed in one step.
        num_blocks: KV blocks that the worker has; their ids are 0 to ``num_blocks - 1``.
        block_size: Positions in one block.
        encoder_compute_budget: Embeds that encoders may make in one step.
        encoder_cache_size: Embeds that the encoder cache holds.
        enable_prefix_caching: Reuse blocks of equal prompt beginnings.
        enable_chunked_prefill: Cut prompts into several steps. Without it a prompt is computed in one step, and a prompt that exceeds
            `max_num_batched_tokens` is refused.
        disable_chunked_mm_input: Compute the placeholder of an item in one step, whatever else is cut.

    Raises:
        ConfigError: A number is below 1 (below 0 for the encoder's).
    """

    max_model_len: int
    max_num_seqs: int
    max_num_batched_tokens: int
    num_blocks: int
    block_size: int
    encoder_compute_budget: int
    encoder_cache_size: int
    enable_prefix_caching: bool = True
    enable_chunked_prefill: bool = True
    disable_chunked_mm_input: bool = False

    def __post_init__(self) -> None:
        for name in ("max_model_len", "max_num_seqs", "max_num_batched_tokens", "num_blocks", "block_size"):
            if getattr(self, name) < 1:
                raise ConfigError(f"{name} must be 1 or more, not {getattr(self, name)}.")
        for name in ("encoder_compute_budget", "encoder_cache_size"):
            if getattr(self, name) < 0:
                raise ConfigError(f"{name} must be 0 or more, not {getattr(self, name)}.")

    @property
    def max_request_tokens(self) -> int:
        """Longest prompt and answer together that can run, in tokens: the context, or all KV blocks where those hold less."""
        return min(self.max_model_len, self.num_blocks * self.block_size)

    @property
    def max_num_running(self) -> int:
        """Most requests that run at one time; no more than one step has tokens for, so that each of them gets on."""
        return min(self.max_num_seqs, self.max_num_batched_tokens)
