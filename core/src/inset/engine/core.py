"""The core without an engine: plugins, media and processing of one checkpoint, from messages to a processed prompt."""

from __future__ import annotations

import asyncio
import dataclasses
import time
import uuid
from collections.abc import Callable, Coroutine, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from typing import TYPE_CHECKING, Any, Self, TypeVar

from inset.engine.content_parts import MediaPart
from inset.engine.media_sources import MediaLoader, group_by_modality
from inset.engine.prepared import PreparedPrompt, make_engine_request, resolve_max_tokens, token_types
from inset.engine.prompts import ChatPrompt, TextPrompt, read_prompt
from inset.engine.renderer import RenderedPrompt
from inset.errors import InvalidRequestError, InvariantError
from inset.inputs import MODALITIES
from inset.media.budget import RequestBudget
from inset.processing.apply_state import MultiModalApplyState
from inset.processing.inputs import ProcessorInputs
from inset.processing.phases import run_phase, run_release

if TYPE_CHECKING:
    from concurrent.futures import ThreadPoolExecutor
    from pathlib import Path
    from types import TracebackType

    import torch

    from inset.cache.base import CacheMessage, ProcessorCacheFront
    from inset.config import MediaConfig
    from inset.engine.limits import EngineLimits
    from inset.engine.prompts import AnyPrompt, PromptInput
    from inset.engine.renderer import Renderer
    from inset.inputs import ItemPlan, ProcessedPrompt
    from inset.media.budget import ProcessBudget
    from inset.media.executor import MediaExecutor
    from inset.media.fetcher import MediaFetcher
    from inset.processing.processor import MultiModalProcessor
    from inset.processing.tokenizer import Tokenizer
    from inset.sampling_params import SamplingParams

__all__ = ["Core"]

T = TypeVar("T")


class Core:
    """Fetches, names, decodes and processes media for one checkpoint. Thread-safe; owns its threads, connections and caches.

    Use it as a context manager, or close it. Nothing is shared with another core: each has the plugins that it was opened with.

    Example:
        >>> with Core.open("shapes-llava", plugins=["llava", "demo"]) as core:
        ...     prompt = core.process_sync([{"role": "user", "content": [{"type": "image_url", "image_url": {"url": url}}, "What is it?"]}])
        ...     print(prompt.prompt_token_ids, prompt.mm_placeholders)
    """

    def __init__(
        self,
        *,
        renderer: Renderer,
        processor: MultiModalProcessor,
        tokenizer: Tokenizer,
        fetcher: MediaFetcher,
        media_executor: MediaExecutor,
        work_executor: ThreadPoolExecutor,
        process_budget: ProcessBudget,
        media_config: MediaConfig,
        cache: ProcessorCacheFront | None,
        has_engine: bool,
        limits: EngineLimits,
        default_sampling_params: SamplingParams,
    ) -> None:
        self.processor = processor
        self.tokenizer = tokenizer
        self.default_sampling_params = default_sampling_params
        self.cache = cache
        self._has_engine = has_engine
        self._renderer = renderer
        self._fetcher = fetcher
        self._media_executor = media_executor
        self._work_executor = work_executor
        self._process_budget = process_budget
        self._media_config = media_config
        self._loader = MediaLoader(fetcher, media_executor)
        self.limits = limits

    @classmethod
    def open(cls, model: str | Path, **options: Any) -> Core:
        """Returns a core for a checkpoint, without an engine; torch and transformers are not needed to plan.

        Processed items are cached up to `mm_processor_cache_gb`, 0 for none: `process` gives equal media the same read-only tensors.

        Args:
            model: Checkpoint folder, or the name of a checkpoint that an installed plugin ships.
            **options: Every option of `inset.config` by name: ``plugins``, ``media_connector``, ``limit_mm_per_prompt`` ...

        Raises:
            ConfigError: An option or the checkpoint cannot be served.
            PluginError: A plugin that was named cannot be loaded, or nothing serves this checkpoint.
        """
        from inset.engine.build import open_core

        return open_core(model=str(model), **options)

    @property
    def num_decoded_bytes(self) -> int:
        """Bytes that are reserved for decoded media now."""
        return self._process_budget.decoded_bytes

    async def prepare(self, prompt: PromptInput, params: SamplingParams, *, request_id: str) -> PreparedPrompt:
        """Returns a prompt that is ready for the engine core; its items are committed to the processor cache under `request_id`.

        Raises:
            ClientError: The prompt cannot be served; the item and its place are named.
            OverloadedError: Too much decoded media is in use.
        """
        stages: dict[str, float] = {}
        budget = RequestBudget(self._media_config, self._process_budget)
        try:
            inputs, parts = await self._gather_inputs(prompt, request_id, budget, stages)
            with _placing(parts):
                state, processed, resolved = await self._process(inputs, params, stages)
        except BaseException:
            budget.close()
            raise
        request = make_engine_request(request_id, processed, resolved, self.tokenizer.eos_token_ids)
        return PreparedPrompt(processed, request, resolved, state=state, budget=budget, stage_seconds=stages)

    async def process_again(self, prepared: PreparedPrompt, missing: Sequence[tuple[bytes, int]], *, lost_before: int = 0) -> None:
        """Processes a prompt again whose items the engine half of the processor cache has lost, and commits them under the same id."""
        if self.cache is not None:
            self.cache.drop(missing, lost_before=lost_before)
        state = prepared.state
        await self._in_thread(self.processor.restart, state)
        await state.wait_decodes_async()
        processed = await self._in_thread(self.processor.apply_phase2, state)
        prepared.prompt = processed
        prepared.request = make_engine_request(prepared.commit_id, processed, prepared.params, self.tokenizer.eos_token_ids)

    async def process(self, prompt: AnyPrompt) -> ProcessedPrompt:
        """Returns the processed prompt with all tensors, for `generate` of transformers or another engine.

        Beside an engine, whose half of the processor cache has the tensors, the cache is left out.

        Args:
            prompt: As `inset.engine.prompts.read_prompt` takes it: a text, token ids, messages in OpenAI's form, a mapping, or a
                `TextPrompt` or `ChatPrompt`.

        Raises:
            ClientError: As `prepare`.
        """
        with RequestBudget(self._media_config, self._process_budget) as budget:
            inputs, parts = await self._gather_inputs(read_prompt(prompt), uuid.uuid4().hex, budget, {})
            inputs = dataclasses.replace(inputs, skip_mm_cache=inputs.skip_mm_cache or self._has_engine)
            with _placing(parts):
                state, processed, _ = await self._process(inputs, None, {})
                state.close()
                return processed

    def process_sync(self, prompt: AnyPrompt) -> ProcessedPrompt:
        """Does what `process` does and blocks, for callers without an event loop.

        Raises:
            ClientError: As `prepare`.
            InvariantError: The calling thread runs an event loop, which this would stop.
        """
        return _run_here(self.process, prompt)

    async def plan(self, prompt: AnyPrompt) -> ProcessedPrompt:
        """Returns token ids, hashes, placeholders and plans from headers alone: no item is decoded, and there are no tensors.

        Args:
            prompt: As for `process`.

        Raises:
            ClientError: As `prepare`.
        """
        with RequestBudget(self._media_config, self._process_budget) as budget:
            inputs, parts = await self._gather_inputs(read_prompt(prompt), uuid.uuid4().hex, budget, {})
            with _placing(parts):
                return await self._in_thread(self.processor.plan_prompt, inputs)

    def plan_sync(self, prompt: AnyPrompt) -> ProcessedPrompt:
        """Does what `plan` does and blocks, for callers without an event loop.

        Raises:
            ClientError: As `prepare`.
            InvariantError: The calling thread runs an event loop, which this would stop.
        """
        return _run_here(self.plan, prompt)

    def to_transformers(self, prompt: ProcessedPrompt) -> dict[str, torch.Tensor]:
        """Returns the arguments of `generate` of transformers for what `process` gave, a batch of one, on the CPU in float32.

        Raises:
            ConfigError: The model family does not say what its tensors are called there.
        """
        import torch

        input_ids = torch.tensor([list(prompt.prompt_token_ids)])
        given = {"input_ids": input_ids, "attention_mask": torch.ones_like(input_ids)}
        if self.processor.needs_token_types:
            given["mm_token_type_ids"] = torch.tensor([token_types(prompt)])
        for modality, items in prompt.mm_kwargs.items():
            given.update(self.processor.to_transformers(modality, [item for item in items if item is not None]))
        return given

    def take_cache_messages(self) -> Sequence[CacheMessage]:
        """Takes what the engine half of the processor cache must apply before the next prompt is sent."""
        return () if self.cache is None else self.cache.take_messages()

    def release(self, commit_id: str) -> None:
        """Is told that the engine core no longer holds a prompt's items."""
        if self.cache is not None:
            self.cache.release(commit_id)

    def engine_died(self) -> None:
        """Is told that the engine core is gone, and all it held."""
        if self.cache is not None:
            self.cache.engine_restarted()

    def reset_mm_cache(self) -> None:
        """Forgets processed items that nothing uses."""
        if self.cache is not None:
            self.cache.reset()

    def close(self) -> None:
        """Ends connections and threads and frees the caches; idempotent."""
        self._fetcher.close()
        self._media_executor.close()
        self._work_executor.shutdown(wait=True, cancel_futures=True)
        if self.cache is not None:
            self.cache.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.close()

    async def _gather_inputs(
        self, prompt: PromptInput, request_id: str, budget: RequestBudget, stages: dict[str, float]
    ) -> tuple[ProcessorInputs, Sequence[MediaPart]]:
        """Renders the prompt and fetches its media."""
        options = prompt.options
        with _timed(stages, "render"):
            rendered = await self._in_thread(self._render, prompt)
        parts = [part for part in rendered.media if part.modality != "prompt"]
        counts = {modality: sum(part.modality == modality for part in parts) for modality in MODALITIES}
        self.processor.info.check_mm_counts(counts)
        with _timed(stages, "fetch"):
            values = await self._loader.load(parts, lambda modality: self._media_io(modality, options.media_io_kwargs), budget)
        inputs = ProcessorInputs(
            request_id=request_id,
            prompt=rendered.token_ids,
            prompt_text=rendered.text,
            mm_data=_mm_data(parts, values),
            mm_uuids=group_by_modality(parts, [part.uuid for part in parts]),
            mm_details=group_by_modality(parts, [part.detail for part in parts]),
            mm_processor_kwargs=options.mm_processor_kwargs,
            media_io_kwargs=options.media_io_kwargs,
            prompt_embeds=prompt.prompt_embeds if isinstance(prompt, TextPrompt) else None,
            cache_salt=options.cache_salt,
            api_key=options.client or None,
            skip_mm_cache=options.skip_mm_cache,
            budget=budget,
        )
        return inputs, parts

    def _media_io(self, modality: str, media_io_kwargs: Mapping[str, Mapping[str, Any]]) -> Any:
        return self.processor.info.get_media_io(modality, media_io_kwargs.get(modality))

    def _render(self, prompt: PromptInput) -> RenderedPrompt:
        if isinstance(prompt, ChatPrompt):
            return self._renderer.render_chat(prompt.messages, prompt.policy, prompt.chat)
        media = _given_parts(prompt)
        if prompt.prompt is not None:
            rendered = self._renderer.render_text(prompt.prompt)
            return RenderedPrompt(rendered.text, rendered.token_ids, media)
        return RenderedPrompt(None, list(prompt.prompt_token_ids or ()), media)

    async def _process(
        self, inputs: ProcessorInputs, params: SamplingParams | None, stages: dict[str, float]
    ) -> tuple[MultiModalApplyState, ProcessedPrompt, Any]:
        """Plans, checks, decodes and materialises; the returned state is open."""

        def check(plans: Mapping[str, Sequence[ItemPlan]], num_prompt_tokens: int) -> None:
            self.limits.check_items(plans)
            resolve_max_tokens(params, num_prompt_tokens, self.limits.max_model_len)

        with _timed(stages, "plan"):
            phase1 = partial(self.processor.apply_phase1, inputs, check=check)
            state = await run_phase(self._work_executor, phase1, undo=MultiModalApplyState.close)
        try:
            with _timed(stages, "decode"):
                await state.wait_decodes_async()
            with _timed(stages, "materialize"):
                processed = await self._in_thread(partial(self.processor.apply_phase2, state, check=check))
            resolved = resolve_max_tokens(params, len(processed.prompt_token_ids), self.limits.max_model_len)
        except BaseException:
            await run_release(self._work_executor, state.close)
            raise
        return state, processed, resolved

    async def _in_thread(self, work: Callable[..., T], *arguments: Any) -> T:
        return await run_phase(self._work_executor, partial(work, *arguments), undo=lambda _: None)


def _run_here(work: Callable[[AnyPrompt], Coroutine[Any, Any, T]], prompt: AnyPrompt) -> T:
    """Runs a coroutine on a loop of its own in this thread."""
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return asyncio.run(work(prompt))
    raise InvariantError("This thread runs an event loop: await the asynchronous form of the call.")


def _given_parts(prompt: TextPrompt) -> tuple[MediaPart, ...]:
    """Returns the media of a plain prompt as parts, in the order of its modalities."""
    parts = []
    for modality, items in prompt.multi_modal_data.items():
        uuids = prompt.multi_modal_uuids.get(modality) or [None] * len(items)
        if len(uuids) != len(items):
            raise InvalidRequestError(f"There are {len(items)} {modality}(s) and {len(uuids)} uuids.", stage="parse", modality=modality)
        for index, (item, name) in enumerate(zip(items, uuids, strict=True)):
            parts.append(
                MediaPart(
                    modality=modality,
                    kind="object" if item is not None else "uuid",
                    source=item,
                    uuid=name,
                    parameter=f"multi_modal_data.{modality}[{index}]",
                )
            )
    return tuple(parts)


def _mm_data(parts: Sequence[MediaPart], values: Sequence[Any]) -> dict[str, list[Any]]:
    return dict(group_by_modality(parts, values))


@contextmanager
def _placing(parts: Sequence[MediaPart]) -> Iterator[None]:
    """Notes in an error that names an item where the client put it."""
    from inset.errors import InsetError

    try:
        yield
    except InsetError as error:
        if error.modality is not None and error.item_index is not None:
            places = [part.parameter for part in parts if part.modality == error.modality]
            if error.item_index < len(places):
                error.locate(parameter=places[error.item_index])
        raise


@contextmanager
def _timed(stages: dict[str, float], stage: str) -> Iterator[None]:
    start = time.perf_counter()
    try:
        yield
    finally:
        stages[stage] = stages.get(stage, 0.0) + time.perf_counter() - start
