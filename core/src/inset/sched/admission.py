"""Which requests can never run, and are refused before they wait."""

from __future__ import annotations

from inset.errors import InvalidRequestError, InvariantError, ItemTooLargeError, PromptTooLongError
from inset.inputs import EngineRequest, MultiModalFeature
from inset.sched.limits import SchedulerLimits

__all__ = ["check_admission"]


def check_admission(request: EngineRequest, limits: SchedulerLimits) -> None:
    """Refuses a request that could never run, whatever else finishes; everything that passes will run.

    Raises:
        InvalidRequestError: The prompt is empty.
        PromptTooLongError: The prompt leaves no room for a token of answer in the context or in the KV cache, or is longer than a step
            while prompts are not cut.
        ItemTooLargeError: An item has more embeds than encoders may make in a step or the encoder cache holds, or more positions than a
            step while items are not cut; or the items of a prompt together, while prompts are not cut.
        InvariantError: The placeholders overlap, or lie outside the prompt: a mistake of the processor.
    """
    num_tokens = len(request.prompt_token_ids)
    _check_prompt(num_tokens, limits)
    last = 0
    for item in request.mm_features:
        place = item.placeholder
        if place.offset < last or place.end > num_tokens:
            raise InvariantError(
                f"A placeholder covers positions {place.offset} to {place.end} of {num_tokens}, and the one before it ends at {last}.",
                stage="queue",
            ).locate(modality=item.modality, item_index=item.item_index)
        last = place.end
        _check_item(item, limits)
    if not limits.enable_chunked_prefill:
        _check_items_together(request, limits)


def _check_prompt(num_tokens: int, limits: SchedulerLimits) -> None:
    if num_tokens == 0:
        raise InvalidRequestError("The prompt is empty: send at least one token.", stage="queue")
    if num_tokens >= limits.max_request_tokens:
        held = limits.num_blocks * limits.block_size
        where = "context" if limits.max_model_len <= held else "KV cache"
        raise PromptTooLongError(
            f"The prompt has {num_tokens} tokens and the {where} holds {limits.max_request_tokens}, the answer included: "
            "shorten the prompt, or send fewer or smaller items.",
            stage="queue",
        )
    if not limits.enable_chunked_prefill and num_tokens > limits.max_num_batched_tokens:
        raise PromptTooLongError(
            f"The prompt has {num_tokens} tokens and a step computes {limits.max_num_batched_tokens}: "
            "shorten the prompt, or have the operator raise --max-num-batched-tokens or turn chunked prefill on.",
            stage="queue",
        )


def _check_item(item: MultiModalFeature, limits: SchedulerLimits) -> None:
    num_embeds, num_tokens = item.num_embeds, item.placeholder.length
    if num_embeds > limits.encoder_cache_size:
        reason = f"it needs {num_embeds} embeds and the encoder cache holds {limits.encoder_cache_size} (--encoder-cache-size)"
    elif num_embeds > limits.encoder_compute_budget and not item.is_embedding:
        reason = f"it needs {num_embeds} embeds and a step makes {limits.encoder_compute_budget} (--encoder-compute-budget)"
    elif limits.disable_chunked_mm_input and num_tokens > limits.max_num_batched_tokens:
        reason = f"it takes {num_tokens} positions and a step computes {limits.max_num_batched_tokens}, while items are not cut"
    else:
        return
    raise ItemTooLargeError(
        f"The item is too large: {reason}. Send it smaller.", stage="queue", modality=item.modality, item_index=item.item_index
    )


def _check_items_together(request: EngineRequest, limits: SchedulerLimits) -> None:
    distinct = {item.mm_hash: item for item in request.mm_features}.values()
    num_held = sum(item.num_embeds for item in distinct)
    num_made = sum(item.num_embeds for item in distinct if not item.is_embedding)
    if num_held > limits.encoder_cache_size or num_made > limits.encoder_compute_budget:
        raise ItemTooLargeError(
            f"The items need {num_held} embeds together; a step makes {limits.encoder_compute_budget}, the encoder cache holds "
            f"{limits.encoder_cache_size}, and prompts are not cut here: send fewer or smaller items.",
            stage="queue",
        )
