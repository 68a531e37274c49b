"""What the engine admits, resolved from options, checkpoint and processor."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from inset.errors import ConfigError, ItemTooLargeError
from inset.sched.encoder_budget import compute_mm_encoder_budget

if TYPE_CHECKING:
    from inset.checkpoint import Checkpoint
    from inset.config import EngineConfig, ModelConfig
    from inset.inputs import ItemPlan
    from inset.processing.info import ProcessingInfo

__all__ = ["EngineLimits", "resolve_limits", "resolve_max_model_len"]

_DEFAULT_MAX_MODEL_LEN = 4096


@dataclass(frozen=True, slots=True)
class EngineLimits:
    """What the engine admits; known to every front end before it decodes anything.

    Attributes:
        max_model_len: Longest prompt and answer together, in tokens.
        encoder_compute_budget: Embeds that encoders may make in one step; finished embeddings take none of it.
        encoder_cache_size: Embeds that the encoder cache holds.
    """

    max_model_len: int
    encoder_compute_budget: int
    encoder_cache_size: int

    def check_items(self, plans: Mapping[str, Sequence[ItemPlan]]) -> None:
        """Refuses items that the engine could never hold.

        Raises:
            ItemTooLargeError: An item has too many embeds; the numbers and the item are named.
        """
        for modality, modality_plans in plans.items():
            for index, plan in enumerate(modality_plans):
                if plan.num_embeds > self.encoder_cache_size:
                    reason = f"the encoder cache holds {self.encoder_cache_size} (--encoder-cache-size)"
                elif plan.num_embeds > self.encoder_compute_budget and not plan.is_embedding:
                    reason = f"a step makes {self.encoder_compute_budget} (--encoder-compute-budget)"
                else:
                    continue
                raise ItemTooLargeError(
                    f"It needs {plan.num_embeds} embeds and {reason}. Send it smaller.",
                    stage="plan",
                    modality=modality,
                    item_index=index,
                )


def resolve_max_model_len(config: ModelConfig, checkpoint: Checkpoint) -> int:
    """Returns the context length: the option, or what the checkpoint was made for.

    Raises:
        ConfigError: The option exceeds what the checkpoint was made for.
    """
    text = checkpoint.config.get("text_config") or checkpoint.config
    own = int(text.get("max_position_embeddings") or _DEFAULT_MAX_MODEL_LEN)
    if config.max_model_len is None:
        return own
    if not 1 <= config.max_model_len <= own:
        raise ConfigError(f"--max-model-len {config.max_model_len} is not in 1 to {own}, the positions of this checkpoint.")
    return config.max_model_len


def resolve_limits(config: EngineConfig, info: ProcessingInfo, *, max_model_len: int, accepts_embeds: bool) -> EngineLimits:
    """Returns what the engine admits, from the largest item that the model's processor can make or callers may send as embeddings."""
    enabled = [modality for modality, limit in info.get_mm_limits().items() if limit]
    budget = compute_mm_encoder_budget(
        max_num_batched_tokens=config.max_num_batched_tokens,
        max_model_len=max_model_len,
        max_item_embeds=max((info.max_tokens_per_item(modality) for modality in enabled), default=0),
        accepts_embeds=accepts_embeds,
        encoder_compute_budget=config.encoder_compute_budget,
        encoder_cache_size=config.encoder_cache_size,
    )
    return EngineLimits(max_model_len, budget.encoder_compute_budget, budget.encoder_cache_size)
