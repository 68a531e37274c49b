"""Which front end gets what the engine core says. Pure bookkeeping."""

from __future__ import annotations

from collections.abc import Iterable

from inset.engine.messages import AbortRequests, AddRequests, CacheMissed, DiscardCommit, EngineCommand, EngineEvent, StepDone
from inset.outputs import EngineOutput

__all__ = ["EventRouter"]


class EventRouter:
    """Front end by request and by commit, from the command that brought them to the event that ends them."""

    def __init__(self) -> None:
        self._front_of_request: dict[str, str] = {}
        self._front_of_commit: dict[str, str] = {}

    def note(self, front_id: str, command: EngineCommand) -> None:
        """Remembers who sent a command; called before the engine core carries it out."""
        match command:
            case AddRequests():
                self._front_of_commit[command.commit_id] = front_id
                self._front_of_request.update({request.request_id: front_id for request in command.requests})
            case DiscardCommit():
                self._front_of_commit[command.commit_id] = front_id

    def split(self, event: EngineEvent, *, sender: str | None = None) -> dict[str, EngineEvent]:
        """Returns front end -> its part of an event; the sender of a command gets the stats even where nothing else is for it."""
        if isinstance(event, CacheMissed):
            front_id = self._front_of_commit.pop(event.commit_id, sender)
            return {} if front_id is None else {front_id: event}
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
        return (AbortRequests(running),) if running else ()
