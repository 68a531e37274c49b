"""The core without an engine: plugins, media and processing of one checkpoint, from messages to a processed prompt."""

from __future__ import annotations

import asyncio
import dataclasses
import uuid
from collections.abc import Callable, Coroutine, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, Self, TypeVar

from inset.engine.input_processor import InputProcessor
from inset.engine.media_sources import MediaLoader
from inset.engine.prepared import PreparedPrompt, make_engine_request, resolve_max_tokens, token_types
from inset.engine.prompt_parts import place_prompt_parts
from inset.engine.prompts import read_prompt
from inset.engine.stage_times import StageTimes
from inset.errors import InvalidRequestError, InvariantError
from inset.media.budget import RequestBudget
from inset.processing.apply_state import MultiModalApplyState
from inset.processing.phases import run_phase, run_release

if TYPE_CHECKING:
    from concurrent.futures import ThreadPoolExecutor
    from pathlib import Path
    from types import TracebackType

    import torch

    from inset.cache.base import ProcessorCacheFront
    from inset.cache.values import CacheMessage
    from inset.checkpoint import Checkpoint
    from inset.config import MediaConfig
    from inset.engine.input_processor import GatheredInputs
    from inset.engine.limits import EngineLimits
    from inset.engine.prepared import PlacedRequest
    from inset.engine.prompts import AnyPrompt, PromptInput
    from inset.engine.renderer import Renderer
    from inset.inputs import ItemPlan, ProcessedPrompt
    from inset.media.budget import ProcessBudget
    from inset.media.executor import MediaExecutor
    from inset.media.fetcher import MediaFetcher
    from inset.processing.inputs import ProcessorInputs
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
        plan_executor: ThreadPoolExecutor,
        process_budget: ProcessBudget,
        media_config: MediaConfig,
        cache: ProcessorCacheFront | None,
        has_engine: bool,
        limits: EngineLimits,
        default_sampling_params: SamplingParams,
    ) -> None:
        self.processor = processor
        self.renderer = renderer
        self.tokenizer = tokenizer
        self.default_sampling_params = default_sampling_params
        self.cache = cache
        self._has_engine = has_engine
        self._fetcher = fetcher
        self._media_executor = media_executor
        self._work_executor = work_executor
        self._plan_executor = plan_executor
        self._process_budget = process_budget
        self._media_config = media_config
        self._input_processor = InputProcessor(renderer, MediaLoader(fetcher, media_executor), processor.info)
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
    def checkpoint(self) -> Checkpoint:
        """The checkpoint's configs, and the folder that its name stood for."""
        return self.processor.info.checkpoint

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
        stages = StageTimes()
        state: MultiModalApplyState | None = None
        budget = RequestBudget(self._media_config, self._process_budget)
        try:
            gathered = await self._input_processor.gather(
                prompt, request_id=request_id, budget=budget, stages=stages, threads=self._work_executor
            )
            with gathered.places.noted():
                state, processed, resolved = await self._process(gathered.inputs, params, stages)
            placed = await self._make_request(request_id, processed, gathered.inputs, resolved)
        except BaseException:
            if state is not None:
                await run_release(self._work_executor, state.close)
            budget.close()
            raise
        return PreparedPrompt(placed.prompt, placed.request, resolved, state=state, budget=budget, stages=stages, places=gathered.places)

    async def process_again(self, prepared: PreparedPrompt, missing: Sequence[tuple[bytes, int]], *, lost_before: int = 0) -> None:
        """Processes a prompt again whose items the engine half of the processor cache has lost, and commits them under the same id.

        Raises:
            ClientError: As `prepare`.
        """
        if self.cache is not None:
            self.cache.drop(missing, lost_before=lost_before)
        state = prepared.state
        with prepared.places.noted():
            await self._in_thread(self.processor.restart, state)
            await state.wait_decodes_async()
            processed = await self._in_thread(self.processor.apply_phase2, state)
        prepared.prompt, prepared.request = await self._make_request(prepared.commit_id, processed, state.inputs, prepared.params)

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
            gathered = await self._gather(prompt, budget, self._work_executor)
            if gathered.inputs.prompt_parts:
                raise InvalidRequestError("Parts of type 'prompt_embeds' between others run in our own engine alone.", stage="parse")
            inputs = dataclasses.replace(gathered.inputs, skip_mm_cache=gathered.inputs.skip_mm_cache or self._has_engine)
            with gathered.places.noted():
                state, processed, _ = await self._process(inputs, None, StageTimes())
                state.close()
                return processed

    def process_sync(self, prompt: AnyPrompt) -> ProcessedPrompt:
        """Does what `process` does and blocks; raises `InvariantError` too, where the calling thread runs an event loop."""
        return _run_here(self.process, prompt)

    async def plan(self, prompt: AnyPrompt) -> ProcessedPrompt:
        """Returns token ids, hashes, placeholders and plans from headers alone: no item is decoded, and there are no tensors.

        It has threads of its own, so that neither plans nor prompts that get an answer wait for many of the other.

        Args:
            prompt: As for `process`.

        Raises:
            ClientError: As `prepare`.
        """
        with RequestBudget(self._media_config, self._process_budget) as budget:
            gathered = await self._gather(prompt, budget, self._plan_executor)
            with gathered.places.noted():
                return await run_phase(self._plan_executor, partial(self._plan, gathered.inputs), undo=lambda _: None)

    def plan_sync(self, prompt: AnyPrompt) -> ProcessedPrompt:
        """Does what `plan` does and blocks; raises `InvariantError` too, where the calling thread runs an event loop."""
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
        self._plan_executor.shutdown(wait=True, cancel_futures=True)
        if self.cache is not None:
            self.cache.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.close()

    async def _gather(self, prompt: AnyPrompt, budget: RequestBudget, threads: ThreadPoolExecutor) -> GatheredInputs:
        """Gathers the inputs of a prompt that no engine will see."""
        request_id = uuid.uuid4().hex
        return await self._input_processor.gather(
            read_prompt(prompt), request_id=request_id, budget=budget, stages=StageTimes(), threads=threads
        )

    def _plan(self, inputs: ProcessorInputs) -> ProcessedPrompt:
        return place_prompt_parts(self.processor.plan_prompt(inputs), inputs.prompt_parts).prompt

    async def _process(
        self, inputs: ProcessorInputs, params: SamplingParams | None, stages: StageTimes
    ) -> tuple[MultiModalApplyState, ProcessedPrompt, Any]:
        """Plans, checks, decodes and materialises; the returned state is open."""

        def check(plans: Mapping[str, Sequence[ItemPlan]], num_prompt_tokens: int) -> None:
            self.limits.check_items(plans)
            resolve_max_tokens(params, num_prompt_tokens, self.limits.max_model_len)

        with stages.timed("plan"):
            phase1 = partial(self.processor.apply_phase1, inputs, check=check)
            state = await run_phase(self._work_executor, phase1, undo=MultiModalApplyState.close)
        try:
            await state.wait_decodes_async()
            processed = await self._in_thread(partial(self.processor.apply_phase2, state, check=check))
            resolved = resolve_max_tokens(params, len(processed.prompt_token_ids), self.limits.max_model_len)
        except BaseException:
            await run_release(self._work_executor, state.close)
            raise
        for (stage, _), seconds in state.stage_seconds.items():
            stages.add(stage, seconds)
        return state, processed, resolved

    async def _make_request(
        self, request_id: str, prompt: ProcessedPrompt, inputs: ProcessorInputs, params: SamplingParams
    ) -> PlacedRequest:
        eos_token_ids = self.tokenizer.eos_token_ids
        make = partial(make_engine_request, prompt_parts=inputs.prompt_parts, params=params, eos_token_ids=eos_token_ids)
        if not inputs.prompt_parts and prompt.prompt_embeds is None:
            return make(request_id, prompt)
        return await self._in_thread(make, request_id, prompt)  # embeddings are hashed

    async def _in_thread(self, work: Callable[..., T], *arguments: Any) -> T:
        return await run_phase(self._work_executor, partial(work, *arguments), undo=lambda _: None)


def _run_here(work: Callable[[AnyPrompt], Coroutine[Any, Any, T]], prompt: AnyPrompt) -> T:
    """Runs a coroutine on a loop of its own in this thread."""
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return asyncio.run(work(prompt))
    raise InvariantError("This thread runs an event loop: await the asynchronous form of the call.")
