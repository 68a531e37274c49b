"""Whether items can fit the context at all: found out by their plans, before one token of them is written down."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from inset.errors import ItemTooLargeError, PromptTooLongError
from inset.inputs import ItemPlan

__all__ = ["check_plan_size"]


def check_plan_size(plans: Mapping[str, Sequence[ItemPlan]], max_model_len: int | None) -> None:
    """Refuses items that alone or together take more tokens than the context holds; what stands around them is not counted yet.

    Args:
        plans: Modality -> plan per item.
        max_model_len: Longest prompt, in tokens, or None where it is not known.

    Raises:
        ItemTooLargeError: One item is too large; it is named.
        PromptTooLongError: All of them are.
    """
    if max_model_len is None:
        return
    for modality, modality_plans in plans.items():
        for index, plan in enumerate(modality_plans):
            if plan.num_tokens > max_model_len:
                raise ItemTooLargeError(
                    f"It takes {plan.num_tokens} tokens ({plan.num_embeds} embeds) and the context holds {max_model_len}. Send it smaller.",
                    stage="plan",
                    modality=modality,
                    item_index=index,
                )
    num_tokens = sum(plan.num_tokens for modality_plans in plans.values() for plan in modality_plans)
    if num_tokens > max_model_len:
        raise PromptTooLongError(
            f"The media alone take {num_tokens} tokens, and the context holds {max_model_len} together with text and answer. "
            "Send fewer or smaller media.",
            stage="plan",
        )
