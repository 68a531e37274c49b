"""From what a caller hands in to what the processor takes: rendered, its items counted and fetched."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

from inset.engine.content_parts import MediaPart
from inset.engine.embeds import read_embeds
from inset.engine.item_places import ItemPlaces
from inset.engine.media_sources import group_by_modality
from inset.engine.prompt_parts import PROMPT, expand_prompt_parts
from inset.engine.prompts import ChatPrompt, TextPrompt, read_token_ids
from inset.engine.renderer import RenderedPrompt
from inset.errors import InvalidRequestError
from inset.inputs import MODALITIES
from inset.processing.embedding_items import check_embeds
from inset.processing.inputs import ProcessorInputs
from inset.processing.phases import run_phase

if TYPE_CHECKING:
    from concurrent.futures import Executor

    import numpy as np
    from numpy.typing import NDArray

    from inset.engine.media_sources import MediaLoader
    from inset.engine.prompts import PromptInput
    from inset.engine.renderer import Renderer
    from inset.engine.stage_times import StageTimes
    from inset.media.budget import RequestBudget
    from inset.processing.info import ProcessingInfo

__all__ = ["GatheredInputs", "InputProcessor"]

_EMBEDS = "_embeds"


class GatheredInputs(NamedTuple):
    """A request whose bytes are all there.

    Attributes:
        inputs: What the processor takes.
        places: Where its items stood in the request.
    """

    inputs: ProcessorInputs
    places: ItemPlaces


class _PromptEmbeds(NamedTuple):
    """Embeddings that stand for text: for a whole prompt, which the processor checks, or one by one between others."""

    whole: Any = None
    parts: Sequence[NDArray[np.float32]] = ()


class InputProcessor:
    """Gathers the inputs of requests for one checkpoint; lives as long as its core."""

    def __init__(self, renderer: Renderer, loader: MediaLoader, info: ProcessingInfo) -> None:
        self._renderer = renderer
        self._loader = loader
        self._info = info

    async def gather(
        self, prompt: PromptInput, *, request_id: str, budget: RequestBudget, stages: StageTimes, threads: Executor
    ) -> GatheredInputs:
        """Renders a prompt in one of the threads and fetches its media; nothing is fetched for a prompt that has too many items.

        Raises:
            ClientError: The prompt or one of its items cannot be had; the item and its place are named.
        """
        options = prompt.options
        with stages.timed("render"):
            rendered, embeds = await run_phase(threads, partial(self._read, prompt), undo=lambda _: None)
        parts = [part for part in rendered.media if part.modality != PROMPT]
        self._info.check_mm_counts({modality: sum(part.modality == modality for part in parts) for modality in MODALITIES})
        values = await self._loader.load(
            parts, lambda modality: self._info.get_media_io(modality, options.media_io_kwargs.get(modality)), budget=budget, stages=stages
        )
        inputs = ProcessorInputs(
            request_id=request_id,
            prompt=expand_prompt_parts(rendered.token_ids, embeds.parts),
            prompt_text=rendered.text,
            mm_data=group_by_modality(parts, values),
            mm_uuids=group_by_modality(parts, [part.uuid for part in parts]),
            mm_details=group_by_modality(parts, [part.detail for part in parts]),
            mm_processor_kwargs=options.mm_processor_kwargs,
            media_io_kwargs=options.media_io_kwargs,
            prompt_embeds=embeds.whole,
            prompt_parts=embeds.parts,
            cache_salt=options.cache_salt,
            api_key=options.client or None,
            skip_mm_cache=options.skip_mm_cache,
            budget=budget,
        )
        return GatheredInputs(inputs, ItemPlaces.of(rendered.media))

    def _read(self, prompt: PromptInput) -> tuple[RenderedPrompt, _PromptEmbeds]:
        """Returns the rendered prompt, and the embeddings that stand for text in it."""
        if isinstance(prompt, ChatPrompt):
            rendered = self._renderer.render_chat(prompt.messages, prompt.policy, prompt.chat)
            given = [part for part in rendered.media if part.modality == PROMPT]
            if given and rendered.text is None:
                return rendered, _PromptEmbeds(whole=self._read_part(given[0]))
            return rendered, _PromptEmbeds(parts=[self._read_part(part) for part in given])
        media = tuple(_given_parts(prompt))
        if prompt.prompt is not None:
            rendered = self._renderer.render_text(prompt.prompt)
            return RenderedPrompt(rendered.text, rendered.token_ids, media), _PromptEmbeds()
        token_ids = () if prompt.prompt_token_ids is None else read_token_ids(prompt.prompt_token_ids)
        return RenderedPrompt(None, token_ids, media), _PromptEmbeds(whole=prompt.prompt_embeds)

    def _read_part(self, part: MediaPart) -> NDArray[np.float32]:
        try:
            return check_embeds(read_embeds(part.source), embed_size=self._info.hidden_size, what="Prompt embeddings")
        except InvalidRequestError as error:
            raise error.locate(parameter=part.parameter) from error.__cause__


def _given_parts(prompt: TextPrompt) -> Iterator[MediaPart]:
    """Yields the media of a plain prompt as parts, in the order of its modalities."""
    modalities = [name.removesuffix(_EMBEDS) for name in prompt.multi_modal_data]
    for modality, (name, items) in zip(modalities, prompt.multi_modal_data.items(), strict=True):
        if modalities.count(modality) > 1:
            raise InvalidRequestError(f"Give {modality}s either as media or as embeddings, not both.", stage="parse", modality=modality)
        uuids = prompt.multi_modal_uuids.get(name) or prompt.multi_modal_uuids.get(modality) or [None] * len(items)
        if len(uuids) != len(items):
            raise InvalidRequestError(f"There are {len(items)} {modality}(s) and {len(uuids)} uuids.", stage="parse", modality=modality)
        for index, (item, uuid) in enumerate(zip(items, uuids, strict=True)):
            yield MediaPart(
                modality=modality,
                kind="uuid" if item is None else "object" if name == modality else "embeds",
                source=item,
                uuid=uuid,
                parameter=f"multi_modal_data.{name}[{index}]",
            )
