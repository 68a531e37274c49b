"""Which front end gets what the engine core says. Pure bookkeeping."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from inset.engine.messages import (
    AbortRequests,
    AddRequests,
    CacheMissed,
    DiscardCommit,
    EngineCommand,
    EngineEvent,
    ItemsReset,
    Reset,
    ResetDone,
    ResetItems,
    StepDone,
)
from inset.outputs import EngineOutput

__all__ = ["EventRouter"]


@dataclass(slots=True)
class _ResetRound:
    """One reset: who asked for it, and which front ends have not answered yet."""

    sender: str
    waiting: set[str]


class EventRouter:
    """Front end by request, by commit and by reset, from the command that brought them to the event that ends them."""

    def __init__(self) -> None:
        self._fronts: set[str] = set()
        self._resets: dict[str, _ResetRound] = {}
        self._front_of_request: dict[str, str] = {}
        self._front_of_commit: dict[str, str] = {}

    def add_front(self, front_id: str) -> None:
        """Counts a front end among those that resets reach."""
        self._fronts.add(front_id)

    def note(self, front_id: str, command: EngineCommand) -> bool:
        """Remembers who sent a command, and says whether the engine core carries it out now.

        Of the answers to a reset the last one alone counts. What a front end said may arrive after its end, when nobody waits for it.
        """
        if front_id not in self._fronts:
            return False
        match command:
            case AddRequests():
                self._front_of_commit[command.commit_id] = front_id
                self._front_of_request.update({request.request_id: front_id for request in command.requests})
            case DiscardCommit():
                self._front_of_commit[command.commit_id] = front_id
            case Reset():
                self._resets[command.token] = _ResetRound(front_id, set(self._fronts))
            case ItemsReset():
                return self._has_answered(front_id, command.token)
        return True

    def _has_answered(self, front_id: str, token: str) -> bool:
        """Notes the answer to a reset, and says whether it was the last one."""
        reset = self._resets.get(token)
        if reset is None or front_id not in reset.waiting:
            return False
        reset.waiting.remove(front_id)
        return not reset.waiting

    def split(self, event: EngineEvent, *, sender: str | None = None) -> Mapping[str, EngineEvent]:
        """Returns front end -> its part of an event; the sender of a command gets the stats even where nothing else is for it."""
        match event:
            case CacheMissed():
                front_id = self._front_of_commit.pop(event.commit_id, sender)
                return {} if front_id is None else {front_id: event}
            case ResetItems():
                return dict.fromkeys(self._resets[event.token].waiting, event)
            case ResetDone():
                return {self._resets.pop(event.token).sender: event}
            case StepDone():
                return self._split_step(event, sender)

    def _split_step(self, event: StepDone, sender: str | None) -> dict[str, StepDone]:
        outputs: dict[str, list[EngineOutput]] = {} if sender is None else {sender: []}
        released: dict[str, list[str]] = {}
        for output in event.outputs:
            front_id = self._front_of_request.get(output.request_id)
            if front_id is None:
                continue
            outputs.setdefault(front_id, []).append(output)
            if output.finish_reason is not None:
                del self._front_of_request[output.request_id]
        for commit_id in event.released:
            front_id = self._front_of_commit.pop(commit_id, None)
            if front_id is not None:
                released.setdefault(front_id, []).append(commit_id)
        fronts = outputs.keys() | released.keys()
        return {front_id: StepDone(outputs.get(front_id, ()), event.stats, released.get(front_id, ())) for front_id in fronts}

    def end_front(self, front_id: str) -> Iterable[EngineCommand]:
        """Forgets a front end that is gone, and returns the commands that free what it held."""
        running = tuple(request_id for request_id, owner in self._front_of_request.items() if owner == front_id)
        for request_id in running:
            del self._front_of_request[request_id]
        for commit_id in [commit_id for commit_id, owner in self._front_of_commit.items() if owner == front_id]:
            del self._front_of_commit[commit_id]
        self._fronts.discard(front_id)
        answered = [ItemsReset(token) for token in list(self._resets) if self._has_answered(front_id, token)]
        return [*([AbortRequests(running)] if running else ()), *answered]
