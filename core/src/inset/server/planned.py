"""A planned prompt as JSON: what `inset render` and ``POST /v1/render`` show."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from inset.inputs import ProcessedPrompt

__all__ = ["describe_plan"]


def describe_plan(planned: ProcessedPrompt, *, max_model_len: int) -> dict[str, Any]:
    """Returns token ids, items with their hashes, placeholders and grids, and usage.

    ``is_embed`` is a list of runs (start, stop) relative to the placeholder, or None where every position receives an embedding.
    """
    by_modality = {f"{modality}_tokens": count for modality, count in planned.num_tokens_by_modality.items()}
    return {
        "prompt": planned.prompt_text,
        "prompt_token_ids": list(planned.prompt_token_ids),
        "items": [item for modality in planned.mm_hashes for item in _items(planned, modality)],
        "usage": {"prompt_tokens": len(planned.prompt_token_ids), "prompt_tokens_details": by_modality},
        "max_model_len": max_model_len,
    }


def _items(planned: ProcessedPrompt, modality: str) -> list[dict[str, Any]]:
    entries = zip(planned.mm_hashes[modality], planned.mm_placeholders[modality], planned.mm_plans[modality], strict=True)
    return [
        {
            "modality": modality,
            "index": index,
            "mm_hash": mm_hash.hex(),
            "placeholder": {"offset": placeholder.offset, "length": placeholder.length, "is_embed": placeholder.is_embed},
            "grid": plan.grid,
            "num_tokens": placeholder.length,
            "num_embeds": placeholder.num_embeds,
            "is_exact": plan.is_exact,
        }
        for index, (mm_hash, placeholder, plan) in enumerate(entries)
    ]
