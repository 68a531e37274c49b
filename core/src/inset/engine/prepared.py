"""A processed prompt on its way to the engine core: the request that it becomes, and what is kept to process it again."""

from __future__ import annotations

import dataclasses
import random
import time
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from inset.engine.prompt_parts import place_prompt_parts
from inset.errors import PromptTooLongError
from inset.identity import framed_sha256
from inset.inputs import MODALITIES, EngineRequest, MultiModalFeature

if TYPE_CHECKING:
    import numpy as np

    from inset.engine.item_places import ItemPlaces
    from inset.engine.stage_times import StageTimes
    from inset.inputs import ProcessedPrompt
    from inset.media.budget import RequestBudget
    from inset.processing.apply_state import MultiModalApplyState
    from inset.sampling_params import SamplingParams

__all__ = ["PlacedRequest", "PreparedPrompt", "make_answer_requests", "make_engine_request", "resolve_max_tokens", "token_types"]


class PreparedPrompt:
    """A prompt that is ready for the engine core, with what is needed to process it again.

    Whoever called `Core.prepare` closes it.

    Attributes:
        prompt: The processed prompt without its tensors.
        request: The request of one answer; answers differ in id and seed. Its tensors go with the media.
        params: With `max_tokens` resolved.
        commit_id: The id under which the processor cache committed the items.
        stages: Where its time went so far.
        places: Where its items stood in the request.
        is_sent: The engine core has it.
    """

    def __init__(
        self,
        prompt: ProcessedPrompt,
        request: EngineRequest,
        params: SamplingParams,
        *,
        state: MultiModalApplyState,
        budget: RequestBudget,
        stages: StageTimes,
        places: ItemPlaces,
    ) -> None:
        self.prompt = prompt
        self.request = request
        self.params = params
        self.commit_id = request.request_id
        self.stages = stages
        self.places = places
        self.is_sent = False
        self.state = state
        self._budget = budget

    def release_media(self) -> None:
        """Lets go of encoded and decoded media and of tensors, once the engine core has admitted the prompt; idempotent."""
        self.request = dataclasses.replace(self.request, mm_features=(), prompt_embeds=None)
        self.state.close()
        self._budget.close()

    def close(self) -> None:
        """Frees what the front holds for this prompt; idempotent."""
        self.release_media()


def resolve_max_tokens(params: SamplingParams | None, num_prompt_tokens: int, max_model_len: int) -> SamplingParams | None:
    """Returns the params with the longest answer that the context allows.

    Raises:
        PromptTooLongError: Prompt, or prompt and the answer asked for, do not fit.
    """
    room = max_model_len - num_prompt_tokens
    if room < 1:
        raise PromptTooLongError(
            f"The prompt has {num_prompt_tokens} tokens, and the context holds {max_model_len} together with the answer. "
            "Send less text, or fewer or smaller media.",
            stage="plan",
        )
    if params is None:
        return None
    if params.max_tokens is not None and params.max_tokens > room:
        raise PromptTooLongError(
            f"The prompt has {num_prompt_tokens} tokens and the answer may have {params.max_tokens}; the context holds {max_model_len}. "
            f"Ask for at most {room}, or send less.",
            stage="plan",
            parameter="max_tokens",
        )
    return params if params.max_tokens is not None else dataclasses.replace(params, max_tokens=room)


class PlacedRequest(NamedTuple):
    """The request of one answer, and the prompt as it has it.

    Attributes:
        prompt: With no negative ids left, and without tensors, which the request has alone.
        request: For the engine core.
    """

    prompt: ProcessedPrompt
    request: EngineRequest


def make_engine_request(
    request_id: str,
    prompt: ProcessedPrompt,
    *,
    prompt_parts: Sequence[np.ndarray[Any, Any]],
    params: SamplingParams,
    eos_token_ids: tuple[int, ...],
) -> PlacedRequest:
    """Returns the request of one answer to a processed prompt. Finished embeddings are hashed, which takes time where they are long.

    Args:
        request_id: The name that the engine core knows it by.
        prompt: As it was processed; where `prompt_parts` stand its token ids are negative.
        prompt_parts: ``(num_embeds, hidden_size)`` float32 each.
        params: With `max_tokens` resolved.
        eos_token_ids: What ends the answer.
    """
    prompt, own_features = place_prompt_parts(prompt, prompt_parts)
    features = [
        MultiModalFeature(
            modality=modality,
            item_index=index,
            mm_hash=mm_hash,
            placeholder=prompt.mm_placeholders[modality][index],
            data=prompt.mm_kwargs[modality][index],
            handle=prompt.mm_handles[modality][index] if modality in prompt.mm_handles else None,
            plan=prompt.mm_plans[modality][index],
            is_embedding="embeds" in (prompt.mm_kwargs[modality][index] or ()),
        )
        for modality, hashes in prompt.mm_hashes.items()
        for index, mm_hash in enumerate(hashes)
    ]
    embeds = prompt.prompt_embeds
    request = EngineRequest(
        request_id=request_id,
        prompt_token_ids=prompt.prompt_token_ids,
        mm_features=sorted([*features, *own_features], key=lambda feature: feature.placeholder.offset),
        sampling_params=params,
        eos_token_ids=eos_token_ids,
        prompt_embeds=embeds,
        prompt_embeds_hash=None if embeds is None else framed_sha256(str(embeds.shape).encode(), embeds.tobytes()),
        cache_salt=prompt.cache_salt,
    )
    return PlacedRequest(dataclasses.replace(prompt, mm_kwargs={}, prompt_embeds=None), request)


def make_answer_requests(prepared: PreparedPrompt) -> list[EngineRequest]:
    """Returns one engine request per answer, with seeds of their own, handed over now."""
    params = prepared.params
    return [
        dataclasses.replace(
            prepared.request,
            request_id=f"{prepared.commit_id}-{index}",
            sampling_params=dataclasses.replace(params, n=1, seed=_answer_seed(params.seed, index)),
            arrival_time_seconds=time.monotonic(),
        )
        for index in range(params.n)
    ]


def _answer_seed(seed: int | None, index: int) -> int | None:
    """Returns the seed of one of several answers: the first has the request's own, and no other comes near to another request's."""
    return seed if seed is None or index == 0 else random.Random(f"{seed}:{index}").getrandbits(63)


def token_types(prompt: ProcessedPrompt) -> list[int]:
    """Returns for each position what transformers wants to know: 1 for an embedding of an image, 2 of a video, 3 of audio, 0 for text."""
    types = [0] * len(prompt.prompt_token_ids)
    for modality, placeholders in prompt.mm_placeholders.items():
        for placeholder in placeholders:
            for start, stop in placeholder.runs:
                types[placeholder.offset + start : placeholder.offset + stop] = [1 + MODALITIES.index(modality)] * (stop - start)
    return types
