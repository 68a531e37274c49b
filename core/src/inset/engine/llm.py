"""Offline use: many prompts in, answers out, in one process."""

from __future__ import annotations

import asyncio
import concurrent.futures
import contextlib
import threading
from collections.abc import Callable, Coroutine, Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Self, TypeVar

from inset.engine.build import build_engine
from inset.engine.content_parts import ContentPolicy
from inset.engine.prompts import ChatPrompt, PromptInput, RequestOptions, TextPrompt, read_prompt
from inset.engine.renderer import ChatOptions
from inset.errors import EngineDeadError, InvalidRequestError
from inset.sampling_params import SamplingParams

if TYPE_CHECKING:
    from pathlib import Path
    from types import TracebackType

    from inset.inputs import ProcessedPrompt
    from inset.outputs import RequestOutput

__all__ = ["LLM"]

T = TypeVar("T")

_OFFLINE = ContentPolicy(accept_objects=True, accept_mm_embeds=True, accept_prompt_embeds=True)
_MAX_IN_FLIGHT = 128


class LLM:
    """A model that answers questions about media, in this process.

    Example:
        >>> with LLM("shapes-llava") as llm:
        ...     [answer] = llm.chat([{"role": "user", "content": [{"type": "image", "image": "a.png"}, "What is in the picture?"]}])
        ...     print(answer.outputs[0].text)

    Args:
        model: Checkpoint folder, or the name of a checkpoint that an installed plugin ships.
        **options: Every option of `inset.config` by name: ``dtype``, ``max_model_len``, ``limit_mm_per_prompt``, ``plugins`` ...

    Raises:
        ConfigError: An option or the checkpoint cannot be served.
        PluginError: A plugin that was named cannot be loaded.
    """

    def __init__(self, model: str | Path, **options: Any) -> None:
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="inset-llm", daemon=True)
        self._closed = False
        self._lock = threading.Lock()
        try:
            self.engine = build_engine(model=str(model), **options)
        except BaseException:
            self._loop.close()
            raise
        self._thread.start()
        self._call(self.engine.start())

    def generate(
        self,
        prompts: Any,
        sampling_params: SamplingParams | Sequence[SamplingParams] | None = None,
        *,
        use_tqdm: bool = True,
    ) -> list[RequestOutput]:
        """Returns one finished output per prompt, in order.

        Args:
            prompts: One prompt or a list of them: text, token ids, or a mapping with ``prompt``, ``prompt_token_ids`` or ``prompt_embeds``,
                ``multi_modal_data`` and ``multi_modal_uuids``.
            sampling_params: One for all, or one per prompt; the checkpoint's defaults when None.
            use_tqdm: Show a progress bar on standard error when there are several prompts.

        Raises:
            ClientError: A prompt cannot be served; the others are aborted.
        """
        return self._complete([read_prompt(prompt) for prompt in _as_prompts(prompts)], sampling_params, use_tqdm=use_tqdm)

    def chat(
        self,
        messages: Sequence[Mapping[str, Any]] | Sequence[Sequence[Mapping[str, Any]]],
        sampling_params: SamplingParams | Sequence[SamplingParams] | None = None,
        *,
        use_tqdm: bool = True,
        chat_options: ChatOptions | None = None,
        mm_processor_kwargs: Mapping[str, Any] | None = None,
        media_io_kwargs: Mapping[str, Mapping[str, Any]] | None = None,
        cache_salt: str | None = None,
        skip_mm_cache: bool = False,
    ) -> list[RequestOutput]:
        """Returns one finished output per conversation, in order.

        Content parts may also hold pictures, arrays, encoded bytes and paths: ``{"type": "image", "image": picture}``.

        Raises:
            ClientError: A conversation cannot be served; the others are aborted.
        """
        options = RequestOptions(
            mm_processor_kwargs=mm_processor_kwargs or {},
            media_io_kwargs=media_io_kwargs or {},
            cache_salt=cache_salt,
            skip_mm_cache=skip_mm_cache,
        )
        prompts: list[PromptInput] = [
            ChatPrompt(messages=conversation, policy=_OFFLINE, chat=chat_options or ChatOptions(), options=options)
            for conversation in _as_conversations(messages)
        ]
        return self._complete(prompts, sampling_params, use_tqdm=use_tqdm)

    def render(self, messages: Sequence[Mapping[str, Any]], *, chat_options: ChatOptions | None = None) -> ProcessedPrompt:
        """Returns token ids, hashes, placeholders and plans of one conversation from headers alone: nothing is decoded or answered."""
        prompt = ChatPrompt(messages=messages, policy=_OFFLINE, chat=chat_options or ChatOptions())
        return self._call(self.engine.core.plan(prompt))

    def get_default_sampling_params(self) -> SamplingParams:
        """Returns what is used where no sampling params are given: the checkpoint's generation config."""
        return self.engine.core.default_sampling_params

    def reset_mm_cache(self) -> None:
        """Forgets processed items that no request uses."""
        self._call(self.engine.reset("mm_cache"))

    def reset_encoder_cache(self) -> None:
        """Forgets encoder outputs that no request uses."""
        self._call(self.engine.reset("encoder_cache"))

    def reset_prefix_cache(self) -> None:
        """Forgets keys and values that no request uses."""
        self._call(self.engine.reset("prefix_cache"))

    def close(self) -> None:
        """Ends the engine and frees its memory; calls in other threads end with an error. Idempotent."""
        with self._lock:
            if self._closed:
                return
            self._closed = True
        asyncio.run_coroutine_threadsafe(self._end(), self._loop).result()
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.close()

    def _call(self, coroutine: Coroutine[Any, Any, T]) -> T:
        """Runs a coroutine on the engine's loop; an interrupt of this thread cancels it."""
        with self._lock:
            if self._closed:
                coroutine.close()
                raise EngineDeadError("This LLM is closed.")
            future = asyncio.run_coroutine_threadsafe(coroutine, self._loop)
        try:
            return future.result()
        except concurrent.futures.CancelledError:
            raise EngineDeadError("This LLM was closed while it worked.") from None
        except BaseException:
            future.cancel()
            concurrent.futures.wait([future], timeout=10.0)
            raise

    async def _end(self) -> None:
        """Closes the engine, and cancels whatever still runs on this loop, so that nobody waits for ever."""
        await self.engine.close()
        others = asyncio.all_tasks() - {asyncio.current_task()}
        for task in others:
            task.cancel()
        await asyncio.gather(*others, return_exceptions=True)

    def _complete(
        self, prompts: Sequence[PromptInput], sampling_params: SamplingParams | Sequence[SamplingParams] | None, *, use_tqdm: bool
    ) -> list[RequestOutput]:
        params = list(sampling_params) if isinstance(sampling_params, Sequence) else [sampling_params] * len(prompts)
        if not all(isinstance(each, SamplingParams | None) for each in params):
            raise InvalidRequestError("Sampling params must be SamplingParams.", parameter="sampling_params")
        if len(params) != len(prompts):
            raise InvalidRequestError(f"There are {len(prompts)} prompts and {len(params)} sampling params.", parameter="sampling_params")
        with _progress(len(prompts), shown=use_tqdm and len(prompts) > 1) as advance:
            return self._call(self._complete_all(prompts, params, advance))

    async def _complete_all(
        self, prompts: Sequence[PromptInput], params: Sequence[SamplingParams | None], advance: Callable[[], None]
    ) -> list[RequestOutput]:
        room = asyncio.Semaphore(_MAX_IN_FLIGHT)

        async def complete(prompt: PromptInput, sampling: SamplingParams | None) -> RequestOutput:
            async with room:
                async for output in self.engine.generate(prompt, sampling):
                    last = output
            advance()
            return last

        try:
            async with asyncio.TaskGroup() as group:
                tasks = [group.create_task(complete(prompt, sampling)) for prompt, sampling in zip(prompts, params, strict=True)]
        except BaseExceptionGroup as errors:
            raise errors.exceptions[0] from None
        return [task.result() for task in tasks]


def _as_prompts(prompts: Any) -> Sequence[Any]:
    is_one = isinstance(prompts, str | Mapping | TextPrompt | ChatPrompt) or (
        isinstance(prompts, Sequence) and prompts and isinstance(prompts[0], int)
    )
    if not is_one and not isinstance(prompts, Iterable):
        raise InvalidRequestError(f"prompts must be a prompt or a list of them, not {type(prompts).__name__}.", parameter="prompts")
    return [prompts] if is_one else list(prompts)


def _as_conversations(messages: Any) -> Sequence[Sequence[Mapping[str, Any]]]:
    if not isinstance(messages, Sequence):
        raise InvalidRequestError(f"messages must be a list, not {type(messages).__name__}.", parameter="messages")
    return [messages] if messages and isinstance(messages[0], Mapping) else list(messages)


@contextlib.contextmanager
def _progress(total: int, *, shown: bool) -> Iterator[Callable[[], None]]:
    if not shown:
        yield lambda: None
        return
    from tqdm import tqdm

    with tqdm(total=total, desc="Processed prompts", unit="prompt", dynamic_ncols=True) as bar:

        def advance() -> None:
            bar.update(1)

        yield advance
