"""Which prompts the engine core has, and where what it says about them goes."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, TypeAlias

from inset.engine.messages import CacheMissed, EngineEvent, StepDone
from inset.errors import EngineDeadError

if TYPE_CHECKING:
    from inset.outputs import EngineOutput

__all__ = ["Delivery", "PromptEvent", "RunningPrompt", "RunningPrompts"]

PromptEvent: TypeAlias = "tuple[int, EngineOutput] | CacheMissed | EngineDeadError"
"""The output of one of the answers, by its index; that nothing of the prompt was admitted; or the end of the engine core."""


class RunningPrompt:
    """One prompt in the engine core.

    Attributes:
        commit_id: The id under which the processor cache committed its items.
        running: Ids of the answers that have not ended.
        events: What the engine core said about it; filled and emptied on the event loop alone.
    """

    __slots__ = ("commit_id", "events", "running")

    def __init__(self, commit_id: str, request_ids: Iterable[str]) -> None:
        self.commit_id = commit_id
        self.running = set(request_ids)
        self.events: asyncio.Queue[PromptEvent] = asyncio.Queue()


Delivery: TypeAlias = tuple[RunningPrompt, PromptEvent]


class RunningPrompts:
    """The prompts that somebody waits for. Thread-safe."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._prompts: dict[str, RunningPrompt] = {}
        self._answers: dict[str, tuple[RunningPrompt, int]] = {}
        self._waiting: set[RunningPrompt] = set()

    def __len__(self) -> int:
        return len(self._prompts)

    @property
    def num_waiting(self) -> int:
        """Prompts of which no answer has begun."""
        return len(self._waiting)

    def add(self, commit_id: str, request_ids: list[str]) -> RunningPrompt:
        """Begins to listen for the answers of a prompt, in the order of their indices."""
        prompt = RunningPrompt(commit_id, request_ids)
        with self._lock:
            self._prompts[commit_id] = prompt
            self._waiting.add(prompt)
            self._answers.update({request_id: (prompt, index) for index, request_id in enumerate(request_ids)})
        return prompt

    def remove(self, prompt: RunningPrompt) -> tuple[str, ...]:
        """Stops to listen, and returns the ids of the answers that still run."""
        with self._lock:
            self._prompts.pop(prompt.commit_id, None)
            self._waiting.discard(prompt)
            for request_id in prompt.running:
                self._answers.pop(request_id, None)
            return tuple(prompt.running)

    def route(self, event: EngineEvent) -> list[Delivery]:
        """Returns what an event says to whom, and takes note of the answers that it ends; what nobody waits for is left out."""
        with self._lock:
            match event:
                case CacheMissed():
                    return list(self._route_miss(event))
                case StepDone():
                    return list(self._route_outputs(event.outputs))
            return []

    def take_all(self) -> list[RunningPrompt]:
        """Stops to listen for all prompts, and returns them."""
        with self._lock:
            prompts, self._prompts, self._answers = list(self._prompts.values()), {}, {}
            self._waiting.clear()
            return prompts

    def _route_miss(self, event: CacheMissed) -> Iterator[Delivery]:
        prompt = self._prompts.get(event.commit_id)
        if prompt is not None:
            for request_id in prompt.running:
                self._answers.pop(request_id, None)
            prompt.running.clear()
            yield prompt, event

    def _route_outputs(self, outputs: Iterable[EngineOutput]) -> Iterator[Delivery]:
        for output in outputs:
            known = self._answers.get(output.request_id)
            if known is None:
                continue
            prompt, index = known
            self._waiting.discard(prompt)
            if output.finish_reason is not None:
                prompt.running.discard(output.request_id)
                del self._answers[output.request_id]
            yield prompt, (index, output)
