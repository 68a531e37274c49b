"""The end of processing: what a request's state becomes for the engine."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from inset.errors import InvariantError
from inset.inputs import ItemTensors, ProcessedPrompt

if TYPE_CHECKING:
    from inset.cache.values import CommittedItem
    from inset.processing.apply_state import MultiModalApplyState

__all__ = ["build_prompt"]


def build_prompt(state: MultiModalApplyState, committed: Sequence[CommittedItem] | None) -> ProcessedPrompt:
    """Returns what the engine gets.

    Args:
        state: A request whose items are planned.
        committed: How each item travels, in order; None where there is no cache, and the tensors go along.

    Raises:
        InvariantError: An item has no tensors, and nothing was committed.
    """
    kwargs: dict[str, list[ItemTensors | None]] = {modality: [] for modality in state.mm_items}
    handles: dict[str, list[Any]] = {modality: [] for modality in state.mm_items}
    hashes: dict[str, list[bytes]] = {modality: [] for modality in state.mm_items}
    for position, item in enumerate(state.items):
        if committed is not None:
            kwargs[item.modality].append(committed[position].tensors)
            handles[item.modality].append(committed[position].handle)
        elif item.processed is not None:
            kwargs[item.modality].append(item.processed.tensors)
            handles[item.modality].append(None)
        else:
            raise InvariantError(f"{item.modality} {item.original_index} was not processed; wait for the decodes before phase 2.")
        hashes[item.modality].append(item.mm_hash)
    inputs = state.inputs
    expanded = state.expanded
    return ProcessedPrompt(
        prompt_token_ids=state.prompt_token_ids if expanded is None else expanded.token_ids,
        mm_kwargs=kwargs,
        mm_hashes=hashes,
        mm_placeholders={} if expanded is None else {m: r for m, r in expanded.placeholders.items() if m in state.mm_items},
        mm_plans=state.plans,
        mm_handles=handles,
        prompt_text=inputs.prompt if isinstance(inputs.prompt, str) and inputs.prompt else inputs.prompt_text,
        prompt_embeds=inputs.prompt_embeds,
        cache_salt=inputs.cache_salt,
    )
