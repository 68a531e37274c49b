"""The order of steps from a request to token ids and tensors: the same for every model family, and final."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import cached_property
from typing import TYPE_CHECKING, Any, ClassVar, TypeAlias, final

from inset.cache.values import CommittedItem, ProcessedItem
from inset.errors import ConfigError, InvalidRequestError, InvariantError
from inset.identity import JSON, framed_sha256
from inset.inputs import ItemPlan, ItemTensors, ProcessedPrompt
from inset.processing.apply_state import MediaPool, MultiModalApplyState
from inset.processing.built_prompt import build_prompt
from inset.processing.embedding_items import DictEmbeddingItems, EmbeddingItems, check_embeds
from inset.processing.item_work import ItemProcessing
from inset.processing.items import MediaItems
from inset.processing.matching import apply_prompt_updates, check_token_ids
from inset.processing.naming import bind_uuids, name_items, resolve_uuids
from inset.processing.parse import ParseOptions, parse_mm_data
from inset.processing.plan_size import check_plan_size
from inset.processing.prompt_updates import PromptUpdate
from inset.processing.uuids import UuidAliases

if TYPE_CHECKING:
    import numpy as np
    import torch

    from inset.cache.base import ProcessorCacheFront
    from inset.media.header import MediaHeader
    from inset.processing.info import ProcessingInfo
    from inset.processing.inputs import ProcessorInputs
    from inset.processing.item_state import ItemState
    from inset.processing.items import ModalityDataItems

__all__ = ["MultiModalProcessor", "PlanCheck"]

PlanCheck: TypeAlias = Callable[[Mapping[str, Sequence[ItemPlan]], int], None]
"""Takes the plans per modality and the number of prompt tokens, and raises what refuses the request; called before anything is decoded."""


class MultiModalProcessor(ABC):
    """A model family's processing. A family implements `plan`, `prompt_updates` and `materialize`; the core does the rest.

    Thread-safe: one instance serves all requests of a front end, and a family keeps no state between calls.

    Attributes:
        needs_token_types: `generate` of transformers takes ``mm_token_type_ids`` for this family; without it, it places items wrongly.
        info: The family's facts.
        cache: Front half of the processor cache, or None.
        uuids: The clients' own names of items.
    """

    needs_token_types: ClassVar[bool] = False

    def __init__(self, info: ProcessingInfo, *, pool: MediaPool, cache: ProcessorCacheFront | None = None) -> None:
        self.info = info
        self.cache = cache
        self.uuids = UuidAliases()
        self._pool = pool

    @abstractmethod
    def plan(self, modality: str, header: MediaHeader, *, options: Mapping[str, JSON]) -> ItemPlan:
        """Returns what one item will become, from header facts alone; pure, and decodes nothing.

        Args:
            modality: ``image``, ``video`` or ``audio``.
            header: What the probe saw, or what a decoded object shows.
            options: The processor options that act on this modality; their values are checked here.

        Raises:
            InvalidRequestError: The item or an option's value is out of range.
        """

    @abstractmethod
    def prompt_updates(self, plans: Mapping[str, Sequence[ItemPlan]]) -> Sequence[PromptUpdate]:
        """Returns the updates that put the items into the prompt: one per modality of `plans`, also where it has no items."""

    @abstractmethod
    def materialize(self, modality: str, decoded: Any, *, plan: ItemPlan, options: Mapping[str, JSON]) -> ItemTensors:
        """Returns the tensors of one item: fresh contiguous arrays of exactly the sizes that the plan says.

        Runs in a thread of the media pool; sets no global threads.

        Args:
            modality: ``image``, ``video`` or ``audio``.
            decoded: `ImagePixels`, `VideoFrames`, `AudioSamples`, or what the family's own MediaIO gives.
            plan: The exact plan.
            options: As for `plan`.
        """

    def plan_embeds(self, modality: str, embeds: np.ndarray[Any, Any], *, fields: Mapping[str, np.ndarray[Any, Any]]) -> ItemPlan:
        """Returns the plan of finished embeddings; by default one position for each.

        Args:
            modality: ``image``, ``video`` or ``audio``.
            embeds: ``(num_embeds, embed_size)`` float32.
            fields: What came with them, such as ``image_grid_thw``.

        Raises:
            InvalidRequestError: A field is missing, or does not fit the number of embeddings.
        """
        return ItemPlan(num_tokens=len(embeds), num_embeds=len(embeds), tensor_bytes=embeds.nbytes, peak_bytes=embeds.nbytes)

    def to_transformers(self, modality: str, items: Sequence[ItemTensors]) -> Mapping[str, torch.Tensor]:
        """Returns what the plain transformers model takes for processed items, such as normalised ``pixel_values``, in float32.

        Args:
            modality: ``image``, ``video`` or ``audio``.
            items: What `materialize` gave, one or more, in the order of the prompt.

        Raises:
            ConfigError: The family does not say.
        """
        raise ConfigError(f"{type(self).__name__} does not say what transformers takes for {modality} items.")

    @final
    @cached_property
    def fingerprint(self) -> bytes:
        """Identity of this processing, 32 bytes: that of `info`, and the processor's class."""
        return framed_sha256(self.info.fingerprint, f"{type(self).__module__}.{type(self).__qualname__}".encode())

    @final
    def apply(self, inputs: ProcessorInputs, *, check: PlanCheck | None = None) -> ProcessedPrompt:
        """Processes a request in one go: both phases and the wait between them.

        Raises:
            ClientError: As in `apply_phase1` and `MultiModalApplyState.wait_decodes`.
        """
        with self.apply_phase1(inputs, check=check) as state:
            state.wait_decodes()
            return self.apply_phase2(state)

    @final
    def plan_prompt(self, inputs: ProcessorInputs, *, check: PlanCheck | None = None) -> ProcessedPrompt:
        """Returns the prompt as planned from headers, without tensors: nothing is decoded, and the processor cache learns nothing.

        Raises:
            ClientError: As in `apply_phase1`.
        """
        with self._parse(inputs) as state:
            self._plan(state)
            self._expand(state)
            if check is not None:
                check(state.plans, state.num_prompt_tokens)
            return build_prompt(state, [CommittedItem(item.mm_hash, None) for item in state.items])

    @final
    def apply_phase1(self, inputs: ProcessorInputs, *, check: PlanCheck | None = None) -> MultiModalApplyState:
        """Parses, names, looks up, plans, checks and submits decodes, and waits for none of them. Linear in decoded media handed over.

        Args:
            inputs: The request.
            check: Refuses the request by its plans, before anything is decoded.

        Returns:
            The state, which the caller closes.

        Raises:
            InvalidRequestError: Media, options or placeholders are wrong, or more than the context holds; its subclasses say what.
            MediaNotCachedError: A uuid without bytes is not known here.
        """
        state = self._parse(inputs)
        try:
            self._plan(state)
            self._expand(state)
            if check is not None:
                check(state.plans, state.num_prompt_tokens)
            state.submit()
        except BaseException:
            state.close()
            raise
        return state

    @final
    def apply_phase2(self, state: MultiModalApplyState, *, check: PlanCheck | None = None) -> ProcessedPrompt:
        """Commits what was processed and builds the prompt; call it after `wait_decodes`. Quick: nothing is decoded here.

        Args:
            state: What phase 1 gave.
            check: As in `apply_phase1`; called again only where a plan was not exact.

        Raises:
            PlaceholderError: Never for plans that were exact.
        """
        for item in state.items:
            item.plan = item.plan if item.processed is None else item.processed.plan
        if state.plans != state.expanded_plans:
            self._expand(state)
            if check is not None:
                check(state.plans, state.num_prompt_tokens)
        committed = state.commit()
        if committed is not None:
            bind_uuids(state.items, self.uuids)
        return build_prompt(state, committed)

    @final
    def restart(self, state: MultiModalApplyState) -> None:
        """Looks everything up again and submits what is missing, for a request whose items the engine did not have after all.

        Wait for the decodes and apply phase 2 afterwards, as before.

        Raises:
            MediaNotCachedError: An item that came as a uuid alone is gone.
        """
        self._plan(state)
        state.submit()

    @final
    def can_use_cache(self, inputs: ProcessorInputs, mm_items: Mapping[str, ModalityDataItems]) -> bool:
        """Whether a request may read and fill the processor cache: there is one, and no item passes through."""
        return self.cache is not None and not inputs.skip_mm_cache and all(isinstance(items, MediaItems) for items in mm_items.values())

    def _parse(self, inputs: ProcessorInputs) -> MultiModalApplyState:
        info = self.info
        if inputs.prompt_embeds is not None:
            embeds = check_embeds(inputs.prompt_embeds, embed_size=info.hidden_size, what="Prompt embeddings")
            inputs = replace(inputs, prompt_embeds=embeds)
        mm_items = parse_mm_data(
            inputs.mm_data,
            ParseOptions(
                get_media_io=lambda modality: info.get_media_io(modality, inputs.media_io_kwargs.get(modality)),
                embed_size=info.embed_size,
                video_needs_metadata=info.video_needs_metadata,
                audio_sampling_rate=info.audio_sampling_rate,
                mixes_audio_down=info.mixes_audio_down,
            ),
        )
        info.check_mm_counts({modality: len(items) for modality, items in mm_items.items()})
        items = name_items(inputs, mm_items, options=info.item_options(inputs, mm_items), fingerprint=self.fingerprint)
        state = MultiModalApplyState(
            inputs,
            mm_items=mm_items,
            items=items,
            prompt_token_ids=self._tokenize(inputs, mm_items),
            pool=self._pool,
            worker=ItemProcessing(self, inputs.budget),
        )
        for media in mm_items.values():
            if isinstance(media, MediaItems):
                state.on_close(media.release)
        return state

    def _tokenize(self, inputs: ProcessorInputs, mm_items: Mapping[str, ModalityDataItems]) -> Sequence[int]:
        if inputs.prompt_embeds is not None:
            if mm_items or inputs.prompt:
                raise InvalidRequestError("Prompt embeddings come without a prompt and without media.", stage="parse")
            return [0] * len(inputs.prompt_embeds)
        if isinstance(inputs.prompt, str):
            return self.info.tokenizer.encode(inputs.prompt, add_special_tokens=inputs.add_special_tokens)
        return inputs.prompt

    def _plan(self, state: MultiModalApplyState) -> None:
        """Looks every item up, and plans those that the cache does not have."""
        state.begin(self.cache if self.can_use_cache(state.inputs, state.mm_items) else None)
        resolve_uuids(state, self.uuids)
        for item in state.items:
            if item.plan is not None:
                continue
            try:
                self._plan_item(item)
            except InvalidRequestError as error:
                raise item.locate(error, "plan") from error.__cause__

    def _plan_item(self, item: ItemState) -> None:
        items = item.items
        if isinstance(items, MediaItems):
            item.plan = self.plan(item.modality, items.get_header(item.index), options=item.options)
            return
        if not isinstance(items, EmbeddingItems | DictEmbeddingItems):
            raise InvariantError(f"{item.modality} items of {type(items).__name__} are neither media nor embeddings.")
        embeds = items.get(item.index) if isinstance(items, EmbeddingItems) else items.get_embeds(item.index)
        item.plan = replace(self.plan_embeds(item.modality, embeds, fields=items.get_fields(item.index)), is_embedding=True)
        item.processed = ProcessedItem(item.plan, {"embeds": embeds})

    def _expand(self, state: MultiModalApplyState) -> None:
        """Puts the items into the prompt; modalities without items take part, so that a stray placeholder is found."""
        state.expanded_plans = state.plans
        if state.inputs.prompt_embeds is not None:
            return
        plans: dict[str, Sequence[ItemPlan]] = dict.fromkeys(self.info.get_supported_mm_limits(), ())
        plans.update(state.plans)
        check_plan_size(plans, self.info.max_model_len)
        state.expanded = apply_prompt_updates(state.prompt_token_ids, self.prompt_updates(plans), plans=plans)
        check_token_ids(state.expanded, vocab_size=self.info.vocab_size, least=-len(state.inputs.prompt_parts))
