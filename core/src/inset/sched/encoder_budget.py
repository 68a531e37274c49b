"""How many embeds encoders may make in a step, and how many the encoder cache holds."""

from __future__ import annotations

from typing import NamedTuple

from inset.errors import ConfigError

__all__ = ["EncoderBudget", "compute_mm_encoder_budget"]


class EncoderBudget(NamedTuple):
    """The two limits of the encoder, in embeds."""

    encoder_compute_budget: int
    encoder_cache_size: int


def compute_mm_encoder_budget(
    *,
    max_num_batched_tokens: int,
    max_model_len: int,
    max_item_embeds: int,
    accepts_embeds: bool = False,
    encoder_compute_budget: int | None = None,
    encoder_cache_size: int | None = None,
) -> EncoderBudget:
    """Returns both limits of the encoder, in embeds.

    A limit that is not set is `max_num_batched_tokens`, or the largest item that the context admits where that is more, so that no item
    that fits the context is refused; it is 0 where there are no items. A limit that is set is kept, and larger items are refused at
    admission. Finished embeddings take room in the cache, but no encoder makes them.

    Args:
        max_num_batched_tokens: Most positions in one step.
        max_model_len: Context length, in tokens.
        max_item_embeds: Embeds of the largest item that the model's processor can make, over all modalities; 0 for a model that reads none.
        accepts_embeds: Callers may send finished embeddings, which are as long as they like.
        encoder_compute_budget: The option, or None.
        encoder_cache_size: The option, or None.

    Raises:
        ConfigError: A limit that is set is below 1.

    Source: `compute_mm_encoder_budget` of the serving walkthrough; there neither limit is an option.
    """
    for name, value in (("--encoder-compute-budget", encoder_compute_budget), ("--encoder-cache-size", encoder_cache_size)):
        if value is not None and value < 1:
            raise ConfigError(f"{name} must be 1 or more, not {value}; leave it unset for the largest item.")
    largest_made = min(max_item_embeds, max_model_len)
    largest_held = max_model_len if accepts_embeds else largest_made
    return EncoderBudget(
        _default(largest_made, max_num_batched_tokens) if encoder_compute_budget is None else encoder_compute_budget,
        _default(largest_held, max_num_batched_tokens) if encoder_cache_size is None else encoder_cache_size,
    )


def _default(largest_item: int, max_num_batched_tokens: int) -> int:
    return max(max_num_batched_tokens, largest_item) if largest_item else 0
