"""What one request hands to processing."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from inset.identity import JSON

if TYPE_CHECKING:
    import numpy as np

    from inset.media.budget import RequestBudget

__all__ = ["ProcessorInputs"]


@dataclass(frozen=True, slots=True, kw_only=True)
class ProcessorInputs:
    """One prompt with its media.

    Attributes:
        request_id: Unique among the requests that run.
        prompt: Token ids with unexpanded placeholders, or text that still has to be tokenised, whose typed markers are the placeholders.
        prompt_text: The rendered text, where token ids are given; kept for the caller.
        mm_data: Modality -> items, as `inset.processing.parse.parse_mm_data` takes them.
        mm_uuids: Modality -> the client's own name per item, or None.
        mm_details: Modality -> ``low``, ``high``, ``auto`` or None per item: how much of it the client wants the model to see.
        mm_processor_kwargs: The request's processor options.
        media_io_kwargs: Modality -> the request's decode options; a `MediaRef` has them in its key already.
        prompt_embeds: ``(num_tokens, hidden_size)``: embeddings instead of a prompt, or None.
        prompt_parts: ``(num_embeds, hidden_size)`` float32 each: embeddings inside the prompt, where the token ids are negative; kept for
            the caller.
        cache_salt: Separates tenants in every cache.
        api_key: Whose uuids these are, or None.
        add_special_tokens: Put what the tokenizer itself puts around a text prompt.
        skip_mm_cache: Neither read nor fill the processor cache.
        budget: Counts decoded bytes of the request and the process, or None for no limit.
    """

    request_id: str
    prompt: str | Sequence[int] = ()
    prompt_text: str | None = None
    mm_data: Mapping[str, object] = field(default_factory=dict)
    mm_uuids: Mapping[str, Sequence[str | None]] = field(default_factory=dict)
    mm_details: Mapping[str, Sequence[str | None]] = field(default_factory=dict)
    mm_processor_kwargs: Mapping[str, JSON] = field(default_factory=dict)
    media_io_kwargs: Mapping[str, Mapping[str, JSON]] = field(default_factory=dict)
    prompt_embeds: np.ndarray[Any, Any] | None = None
    prompt_parts: Sequence[np.ndarray[Any, Any]] = ()
    cache_salt: str | None = None
    api_key: str | None = None
    add_special_tokens: bool = True
    skip_mm_cache: bool = False
    budget: RequestBudget | None = None
