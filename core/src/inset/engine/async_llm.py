"""Requests side by side on one event loop: prepared in the front, run in the engine core, followed until they end."""

from __future__ import annotations

import asyncio
import dataclasses
import logging
import random
import uuid
from collections.abc import AsyncGenerator, Iterable
from contextlib import aclosing, suppress
from typing import TYPE_CHECKING, Self

from inset.engine.core_client import EngineListener
from inset.engine.failures import error_of
from inset.engine.messages import (
    AbortRequests,
    AddRequests,
    CacheMessage,
    CacheMissed,
    DiscardCommit,
    EngineEvent,
    EngineStats,
    ItemsReset,
    ResetDone,
    ResetItems,
    ResetTarget,
    StepDone,
)
from inset.engine.output_processor import RequestTracker
from inset.engine.prepared import make_answer_requests
from inset.engine.resets import PendingResets
from inset.engine.running_prompts import RunningPrompts
from inset.engine.waiting_room import WaitingRoom
from inset.errors import ConfigError, EngineDeadError, OverloadedError

if TYPE_CHECKING:
    from types import TracebackType

    from inset.engine.core import Core
    from inset.engine.core_client import CoreClient
    from inset.engine.messages import EngineCommand
    from inset.engine.prepared import PreparedPrompt
    from inset.engine.prompts import PromptInput
    from inset.engine.running_prompts import Delivery
    from inset.outputs import RequestOutput
    from inset.sampling_params import SamplingParams

__all__ = ["AsyncLLM"]

logger = logging.getLogger(__name__)

_MAX_RESENDS = 2


class AsyncLLM(EngineListener):
    """An engine for many concurrent requests. Its methods are called on the loop on which `start` ran.

    It owns the core and the client, and closes both.

    Args:
        core: What prepares prompts.
        client: The way to the engine core.
        max_waiting_requests: Most prompts that are prepared or wait for the first token of an answer; None for callers who see to it.
        seed: Requests that bring no seed get theirs from it, in the order in which they come: a fresh engine gives them again.
    """

    def __init__(self, core: Core, client: CoreClient, *, max_waiting_requests: int | None = None, seed: int | str = 0) -> None:
        self.core = core
        self._seeds = random.Random(str(seed))
        self._client = client
        self._waiting_room = WaitingRoom(max_waiting_requests)
        self._running = RunningPrompts()
        self._resets = PendingResets()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._stats = EngineStats()
        self._dead: EngineDeadError | None = None

    async def start(self) -> Self:
        """Begins to listen to the engine core, on the running loop."""
        if self._loop is not None:
            raise ConfigError("This engine has been started already.")
        self._loop = asyncio.get_running_loop()
        self._client.start(self)
        return self

    async def __aenter__(self) -> Self:
        return await self.start()

    async def __aexit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        await self.close()

    @property
    def client(self) -> CoreClient:
        """The way to the engine core."""
        return self._client

    @property
    def is_alive(self) -> bool:
        """The engine core answers."""
        return self._dead is None and self._client.is_alive

    @property
    def num_preparing(self) -> int:
        """Requests that are being fetched, decoded or processed, for the first time or again."""
        return self._waiting_room.num_preparing

    @property
    def num_unfinished(self) -> int:
        """Prompts that the engine core has and that somebody waits for."""
        return len(self._running)

    @property
    def stats(self) -> EngineStats:
        """The engine core's state, at most a second or a step old."""
        return self._stats

    async def generate(
        self, prompt: PromptInput, params: SamplingParams | None = None, *, request_id: str | None = None
    ) -> AsyncGenerator[RequestOutput, None]:
        """Yields the request as it stands after each step that changed it; the last one is finished.

        Ending the iteration early, or cancelling it, aborts the request and frees what it held.

        Args:
            prompt: A prompt with its media, or a conversation; see `inset.engine.prompts`.
            params: The checkpoint's defaults when None.
            request_id: The caller's name for the request, on its outputs; made up when None.

        Raises:
            ClientError: The prompt cannot be served.
            OverloadedError: Too many requests are being prepared or wait.
            EngineDeadError: The engine core is gone.
        """
        commit_id = uuid.uuid4().hex  # not the caller's name, which may come again while the end of the last one is on its way
        params = params or self.core.default_sampling_params
        if params.seed is None:
            params = dataclasses.replace(params, seed=self._seeds.getrandbits(63))
        prepared = await self._prepare(prompt, params, commit_id)
        del prompt  # it can hold many megabytes of media, which nothing needs any more
        try:
            async with aclosing(self._run(request_id or commit_id, prepared)) as outputs:
                async for output in outputs:
                    yield output
        finally:
            self._discard(prepared)

    async def reset(self, target: ResetTarget) -> None:
        """Forgets what a cache holds, as far as nothing uses it, in every process that has a part of it; returns when all have.

        Raises:
            OverloadedError: A process did not answer in time.
            EngineDeadError: The engine core is gone.
        """
        self._check_alive()
        await self._resets.run(target, self._client.send)

    async def close(self) -> None:
        """Ends the engine core and frees everything; requests that still run end with an error. Idempotent."""
        self._fail_all(EngineDeadError("The engine is closed."))
        await asyncio.to_thread(self._client.close)
        await asyncio.to_thread(self.core.close)

    async def _prepare(self, prompt: PromptInput, params: SamplingParams, commit_id: str) -> PreparedPrompt:
        self._check_alive()
        self._waiting_room.check(self._running.num_waiting)
        with self._waiting_room.preparing():
            try:
                return await self.core.prepare(prompt, params, request_id=commit_id)
            except BaseException:
                self._tell(DiscardCommit(commit_id))  # it may have been committed before it failed or was cancelled
                raise

    async def _run(self, request_id: str, prepared: PreparedPrompt) -> AsyncGenerator[RequestOutput, None]:
        """Follows one prompt; what the engine half of the processor cache has lost is processed and sent again."""
        for _ in range(1 + _MAX_RESENDS):
            tracker = RequestTracker(
                request_id,
                prepared.prompt,
                prepared.params,
                tokenizer=self.core.tokenizer.backend,
                stage_seconds=prepared.stages.seconds,
            )
            missed = None
            async with aclosing(self._follow(prepared, tracker)) as items:
                async for item in items:
                    if isinstance(item, CacheMissed):
                        missed = item
                    else:
                        yield item
            if missed is None:
                return
            prepared.is_sent = False
            with self._waiting_room.preparing():
                await self.core.process_again(prepared, missed.missing, lost_before=missed.lost_before)
        raise OverloadedError("The processor cache lost this request's items again and again; come again later.", stage="queue")

    async def _follow(self, prepared: PreparedPrompt, tracker: RequestTracker) -> AsyncGenerator[RequestOutput | CacheMissed, None]:
        requests = make_answer_requests(prepared)
        running = self._running.add(prepared.commit_id, [request.request_id for request in requests])
        try:
            self._send_cache_messages()
            self._client.send(AddRequests(prepared.commit_id, requests))
            prepared.is_sent = True
            del requests  # their tensors are the engine core's from its first word on
            while not tracker.is_finished:
                event = await running.events.get()
                if isinstance(event, EngineDeadError):
                    raise event
                if isinstance(event, CacheMissed):
                    yield event
                    return
                prepared.release_media()
                update = tracker.update(*event)
                if update.failure is not None:
                    with prepared.places.noted():
                        raise error_of(update.failure)
                if update.must_abort:
                    self._tell(AbortRequests((event[1].request_id,)))
                if tracker.is_finished or running.events.empty():
                    yield tracker.snapshot()
        finally:
            left = self._running.remove(running)
            if left:
                self._tell(AbortRequests(left))

    def _send_cache_messages(self) -> None:
        """Sends what the front half tells the engine half; all of it on this one loop, so that the order is that of the commits."""
        for message in self.core.take_cache_messages():
            self._client.send(CacheMessage(message))

    def _tell(self, command: EngineCommand) -> None:
        """Sends what frees something in the engine core; one that is gone has freed everything."""
        with suppress(EngineDeadError):
            self._send_cache_messages()
            self._client.send(command)

    def on_event(self, event: EngineEvent) -> None:
        assert self._loop is not None
        deliveries = self._running.route(event)
        for commit_id in _released(event):
            self.core.release(commit_id)
        if not self._loop.is_closed():
            self._loop.call_soon_threadsafe(self._deliver, event, deliveries)

    def _deliver(self, event: EngineEvent, deliveries: Iterable[Delivery]) -> None:
        match event:
            case StepDone():
                self._stats = event.stats
            case ResetItems():
                self.core.reset_mm_cache()
                self._tell(ItemsReset(event.token))
            case ResetDone():
                self._resets.end(event.token)
        for prompt, item in deliveries:
            prompt.events.put_nowait(item)

    def on_stats(self, stats: EngineStats) -> None:
        assert self._loop is not None
        if not self._loop.is_closed():
            self._loop.call_soon_threadsafe(self._note_stats, stats)

    def _note_stats(self, stats: EngineStats) -> None:
        self._stats = stats

    def on_death(self, error: EngineDeadError) -> None:
        logger.error("%s", error)
        assert self._loop is not None
        self._dead = error
        if not self._loop.is_closed():
            self._loop.call_soon_threadsafe(self._fail_all, error)

    def _fail_all(self, error: EngineDeadError) -> None:
        self._dead = self._dead or error
        self.core.engine_died()
        self._resets.fail_all(self._dead)
        for prompt in self._running.take_all():
            prompt.events.put_nowait(EngineDeadError(error.message))  # each raises its own: a traceback keeps what it went through

    def _discard(self, prepared: PreparedPrompt) -> None:
        """Frees what a prompt held here; one that was never sent is also let go by the engine half."""
        prepared.close()
        if not prepared.is_sent:
            self._tell(DiscardCommit(prepared.commit_id))

    def _check_alive(self) -> None:
        if not self.is_alive:
            raise EngineDeadError("The engine core is gone." if self._dead is None else self._dead.message)


def _released(event: EngineEvent) -> Iterable[str]:
    """Returns the commits whose items the engine half no longer holds."""
    match event:
        case CacheMissed():
            return (event.commit_id,)
        case StepDone():
            return event.released
    return ()
