"""The engine core: takes commands, steps scheduler and worker, tells what came out. One thread calls it."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import TYPE_CHECKING

from inset.cache.values import CommittedItem, MultiModalCacheMissError
from inset.engine.messages import (
    AbortRequests,
    AddRequests,
    CacheMessage,
    CacheMissed,
    DiscardCommit,
    EngineStats,
    ItemsReset,
    Reset,
    ResetDone,
    ResetItems,
    StepDone,
)
from inset.errors import InsetError
from inset.outputs import EngineOutput
from inset.step import RequestFailure

if TYPE_CHECKING:
    from inset.cache.base import ProcessorCacheEngine
    from inset.engine.messages import EngineCommand, EngineEvent
    from inset.inputs import EngineRequest, ItemTensors, MultiModalFeature
    from inset.sched.scheduler import Scheduler
    from inset.worker.model_runner import ModelRunner

__all__ = ["EngineCore"]


class EngineCore:
    """Owns scheduler, worker and the engine half of the processor cache, and frees what a request held when it ends.

    The items of a prompt are held once, under the id of its commit, until the last of its answers has ended.
    """

    def __init__(self, scheduler: Scheduler, model_runner: ModelRunner, cache: ProcessorCacheEngine | None) -> None:
        self._scheduler = scheduler
        self._model_runner = model_runner
        self._cache = cache
        self._commit_of: dict[str, str] = {}
        self._num_running: dict[str, int] = {}

    @property
    def has_work(self) -> bool:
        """A step would do something: compute, or tell the worker what to forget."""
        return self._scheduler.has_unfinished_requests() or self._scheduler.has_news_for_worker()

    def handle(self, command: EngineCommand) -> EngineEvent | None:
        """Carries out one command, and returns what its sender must know at once."""
        match command:
            case AddRequests():
                return self._add(command)
            case AbortRequests():
                return self._abort(command)
            case DiscardCommit():
                self._release(command.commit_id)
                return StepDone((), self.stats(), (command.commit_id,))
            case CacheMessage():
                if self._cache is not None:
                    self._cache.apply(command.message)
            case Reset():
                return self._reset(command)
            case ItemsReset():
                return ResetDone(command.token)
        return None

    def step(self) -> StepDone:
        """Runs one step.

        Raises:
            Exception: The step itself failed; the engine core cannot go on.
        """
        scheduled = self._scheduler.schedule()
        outputs = self._scheduler.update(scheduled, self._model_runner.execute(scheduled))
        if not self._scheduler.has_unfinished_requests():
            self._scheduler.audit()
        return self._done(outputs)

    def stats(self) -> EngineStats:
        """Returns the gauges and counters of now."""
        stats = self._scheduler.stats
        values = {field.name: float(getattr(stats, field.name)) for field in dataclasses.fields(stats)}
        values["num_encoder_runs"] = float(self._model_runner.stats.num_encoder_runs)
        return EngineStats(num_running=stats.num_running, num_waiting=stats.num_waiting, values=values)

    def close(self) -> None:
        """Frees the engine half of the processor cache."""
        if self._cache is not None:
            self._cache.close()

    def _add(self, command: AddRequests) -> EngineEvent | None:
        try:
            requests = self._resolve(command)
        except MultiModalCacheMissError as error:
            self._release(command.commit_id)  # it may never come again: its client can be gone
            return CacheMissed(command.commit_id, error.missing, error.lost_before)
        self._num_running[command.commit_id] = len(requests)
        refused = []
        for request in requests:
            self._commit_of[request.request_id] = command.commit_id
            try:
                self._scheduler.add_request(request)
            except InsetError as error:
                refused.append(_refused(request.request_id, error))
        return self._done(refused) if refused else None

    def _abort(self, command: AbortRequests) -> EngineEvent:
        """Ends answers, and says so: only then may the front half end the leases of their items."""
        for request_id in command.request_ids:
            self._scheduler.abort_request(request_id)
        return self._done([EngineOutput(request_id=request_id, finish_reason="abort") for request_id in command.request_ids])

    def _done(self, outputs: Sequence[EngineOutput]) -> StepDone:
        released = []
        for output in outputs:
            commit_id = None if output.finish_reason is None else self._commit_of.pop(output.request_id, None)
            if commit_id is None:
                continue
            self._num_running[commit_id] -= 1
            if not self._num_running[commit_id]:
                del self._num_running[commit_id]
                self._release(commit_id)
                released.append(commit_id)
        return StepDone(outputs, self.stats(), released)

    def _resolve(self, command: AddRequests) -> list[EngineRequest]:
        """Fills in the tensors of items that the engine half holds."""
        features = command.requests[0].mm_features
        travelling = [feature for feature in features if not feature.is_embedding]
        if self._cache is None or not travelling:
            return list(command.requests)
        items = [CommittedItem(feature.mm_hash, feature.data, feature.handle) for feature in travelling]
        tensors = iter(self._cache.resolve(command.commit_id, items))
        filled = [feature if feature.is_embedding else _with_data(feature, next(tensors)) for feature in features]
        return [dataclasses.replace(request, mm_features=filled) for request in command.requests]

    def _reset(self, command: Reset) -> EngineEvent:
        match command.target:
            case "mm_cache":
                return ResetItems(command.token)
            case "encoder_cache":
                self._scheduler.reset_encoder_cache()
            case "prefix_cache":
                self._scheduler.reset_prefix_cache()
        return ResetDone(command.token)

    def _release(self, commit_id: str) -> None:
        if self._cache is not None:
            self._cache.release(commit_id)


def _with_data(feature: MultiModalFeature, tensors: ItemTensors) -> MultiModalFeature:
    return dataclasses.replace(feature, data=tensors, handle=None)


def _refused(request_id: str, error: InsetError) -> EngineOutput:
    failure = RequestFailure(error.message, error.modality, error.item_index, error.code, stage=error.stage or "queue")
    return EngineOutput(request_id=request_id, finish_reason="error", failure=failure)
