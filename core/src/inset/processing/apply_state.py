"""What a request carries between the phases of processing, and who frees it."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import CancelledError, Future
from contextlib import AbstractContextManager, contextmanager, suppress
from dataclasses import replace
from types import TracebackType
from typing import TYPE_CHECKING, Final, Protocol, Self, TypeVar

from inset.cache.values import ItemToCommit, ProcessedItem
from inset.errors import InsetError, InvariantError, OverloadedError
from inset.media.decode import DecodeJob, collect_media_decodes, collect_media_decodes_async
from inset.processing.failures import Failures

if TYPE_CHECKING:
    from inset.cache.base import CacheTransaction, Flight, ProcessorCacheFront
    from inset.cache.values import CommittedItem
    from inset.inputs import ItemPlan
    from inset.processing.inputs import ProcessorInputs
    from inset.processing.item_state import ItemState
    from inset.processing.items import ModalityDataItems
    from inset.processing.matching import ExpandedPrompt

__all__ = ["ItemWorker", "MediaPool", "MultiModalApplyState"]

T = TypeVar("T")

_MAX_WAIT_SECONDS: Final = 600.0
"""Longest wait for another request that processes the same item."""


class MediaPool(Protocol):
    """Where decoding and materialising run, as `inset.media.executor.MediaExecutor` does."""

    def submit(self, modality: str, work: Callable[[], T], /) -> Future[T]:
        """Runs work in the lane of a modality."""


class ItemWorker(Protocol):
    """What the media pool does for one item.

    Attributes:
        stage_seconds: (stage, modality) -> seconds spent, all items of the request together.
    """

    stage_seconds: dict[tuple[str, str], float]

    def reserve(self, item: ItemState) -> AbstractContextManager[object]:
        """Sets memory aside for the work; what does not fit concerns this request alone."""

    def process(self, item: ItemState) -> ProcessedItem:
        """Decodes and materialises; what goes wrong lies in the item."""


class MultiModalApplyState:
    """One request between `apply_phase1` and the moment when the engine has it; a context manager that owns the forked references.

    Phases and waits of one state run one after another, in any threads. Closing waits for work that runs, then releases everything; until
    then a request can be processed again (`MultiModalProcessor.restart`), because references keep their bytes.

    Attributes:
        inputs: The request.
        items: Every item in the order of modalities and positions.
        mm_items: Modality -> parsed items.
        prompt_token_ids: Token ids with unexpanded placeholders.
        expanded: The prompt as planned; final after phase 2.
        expanded_plans: The plans that it was made from.

    Source: the two-phase apply of lazy media decode.
    """

    def __init__(
        self,
        inputs: ProcessorInputs,
        *,
        mm_items: Mapping[str, ModalityDataItems],
        items: Sequence[ItemState],
        prompt_token_ids: Sequence[int],
        pool: MediaPool,
        worker: ItemWorker,
    ) -> None:
        self.inputs = inputs
        self.mm_items = mm_items
        self.items = items
        self.prompt_token_ids = prompt_token_ids
        self.expanded: ExpandedPrompt | None = None
        self.expanded_plans: Mapping[str, Sequence[ItemPlan]] = {}
        self._pool = pool
        self._worker = worker
        self._transaction: CacheTransaction | None = None
        self._flights: dict[bytes, Flight] = {}
        self._jobs: dict[bytes, DecodeJob] = {}
        self._on_close: list[Callable[[], None]] = []

    @property
    def plans(self) -> dict[str, list[ItemPlan]]:
        """Modality -> plan per item, in request order."""
        plans: dict[str, list[ItemPlan]] = {modality: [] for modality in self.mm_items}
        for item in self.items:
            if item.plan is None:
                raise InvariantError(f"{item.modality} {item.original_index} has no plan yet.")
            plans[item.modality].append(item.plan)
        return plans

    @property
    def num_prompt_tokens(self) -> int:
        """Length of the prompt with its placeholders, in tokens; it can change until phase 2 where a plan is not exact."""
        return len(self.prompt_token_ids) if self.expanded is None else len(self.expanded.token_ids)

    @property
    def stage_seconds(self) -> Mapping[tuple[str, str], float]:
        """(stage, modality) -> seconds that this request spent in ``decode`` and ``materialize``, all items together."""
        return dict(self._worker.stage_seconds)

    def on_close(self, release: Callable[[], None]) -> None:
        """Has something released when the state closes."""
        self._on_close.append(release)

    def begin(self, cache: ProcessorCacheFront | None) -> None:
        """Opens a transaction, in place of the one before, and looks up every item whose name is known."""
        self._end_work()
        self._transaction = None if cache is None else cache.begin()
        for item in self.items:
            item.is_cached = False
            if item.mm_hash:
                self.look_up(item)

    def look_up(self, item: ItemState) -> bool:
        """Returns whether the cache has an item, and pins it then."""
        plan = None if self._transaction is None else self._transaction.look_up(item.mm_hash)
        if plan is not None:
            item.plan, item.is_cached = plan, True
        return plan is not None

    def is_held(self, mm_hash: bytes) -> bool:
        """Returns whether the cache has an item of that name, which need not be one of this request's."""
        return self._transaction is not None and self._transaction.look_up(mm_hash) is not None

    def submit(self) -> None:
        """Submits the work that this request leads; joins none of it."""
        for item in self.items:
            if item.is_cached or item.processed is not None or item.mm_hash in self._jobs or item.mm_hash in self._flights:
                continue
            flight = None if self._transaction is None else self._transaction.join_flight(item.mm_hash)
            if flight is not None:
                self._flights[item.mm_hash] = flight
            elif self._transaction is not None and self.look_up(item):  # cached since it was looked up
                continue
            if flight is None or flight.is_leader:
                self._submit(item)

    def wait_decodes(self) -> None:
        """Waits until every item is there; does all of the waiting before it raises.

        Raises:
            InsetError: The first failure in request order, with modality and item index.
        """
        failures = Failures()
        with failures.kept():
            collect_media_decodes(list(self._jobs.values()))
        for item, flight in self._followed():
            with failures.kept(), _following(item):
                processed = flight.wait(_MAX_WAIT_SECONDS)
                if processed is not None:
                    self._keep(item, processed)
                elif not failures:  # its leader is gone, and we are next
                    collect_media_decodes([self._submit(item)])
        failures.raise_first(self.items)
        self._take_results()

    async def wait_decodes_async(self) -> None:
        """The same without blocking the event loop. A caller that is cancelled still waits for work that runs, then is cancelled.

        Raises:
            InsetError: The first failure in request order, with modality and item index.
        """
        failures = Failures()
        with failures.kept():
            await collect_media_decodes_async(list(self._jobs.values()))
        for item, flight in self._followed():
            with failures.kept(), _following(item):
                processed = await flight.wait_async(_MAX_WAIT_SECONDS)
                if processed is not None:
                    self._keep(item, processed)
                elif not failures:
                    await collect_media_decodes_async([self._submit(item)])
        failures.raise_first(self.items)
        self._take_results()

    def commit(self) -> Sequence[CommittedItem] | None:
        """Hands the items to the cache, which closes the transaction; returns None where there is no cache."""
        if self._transaction is None:
            return None
        to_commit = [ItemToCommit(item.mm_hash, None if item.is_cached else item.processed) for item in self.items]
        return self._transaction.commit(self.inputs.request_id, to_commit)

    def close(self) -> None:
        """Waits for work that runs, then releases references, pins and flights, and forgets media and tensors; idempotent."""
        self._end_work()
        for release in self._on_close:
            release()
        self._on_close.clear()
        self.inputs = replace(self.inputs, mm_data={}, prompt_embeds=None, prompt_parts=())
        self.mm_items = {}
        self.items = ()

    def _end_work(self) -> None:
        for mm_hash, job in self._jobs.items():
            if job.future.cancel() and mm_hash in self._flights:
                self._flights[mm_hash].leave()  # whoever is next need not wait for our other items
        for job in self._jobs.values():
            with suppress(CancelledError):
                job.future.exception()
        self._jobs.clear()
        self._flights.clear()
        if self._transaction is not None:
            self._transaction.close()

    def _submit(self, item: ItemState) -> DecodeJob:
        flight = self._flights.get(item.mm_hash)
        future = self._pool.submit(item.modality, lambda: _lead(flight, self._worker, item))
        job = DecodeJob(item.modality, item.original_index, future)
        self._jobs[item.mm_hash] = job
        return job

    def _followed(self) -> Iterator[tuple[ItemState, Flight]]:
        """The items that other requests process, once each."""
        for item in self.items:
            if item.mm_hash in self._flights and item.mm_hash not in self._jobs and item.processed is None:
                yield item, self._flights[item.mm_hash]

    def _keep(self, item: ItemState, processed: ProcessedItem) -> None:
        for other in self.items:
            if other.mm_hash == item.mm_hash:
                other.processed = processed

    def _take_results(self) -> None:
        for item in self.items:
            if item.mm_hash in self._jobs:
                item.processed = self._jobs[item.mm_hash].future.result(timeout=0)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.close()


@contextmanager
def _following(item: ItemState) -> Iterator[None]:
    """Notes the item in an error that another request met with."""
    try:
        yield
    except InsetError as error:
        raise item.locate(error, "decode") from error.__cause__
    except TimeoutError as error:
        message = f"Another request has been processing the same {item.modality} for {_MAX_WAIT_SECONDS:.0f} seconds."
        raise OverloadedError(message, stage="decode") from error


def _lead(flight: Flight | None, worker: ItemWorker, item: ItemState) -> ProcessedItem:
    """Processes an item for everyone who wants it; runs in the media pool."""
    try:
        with worker.reserve(item):
            try:
                processed = worker.process(item)
            except OverloadedError:
                raise
            except InsetError as error:
                if flight is not None:
                    flight.fail(copy.copy(error))  # each request notes its own position in it
                raise
    except BaseException:
        if flight is not None:
            flight.leave()  # what is wrong lies with this request or this moment, and does not concern the others
        raise
    if flight is not None:
        flight.complete(processed)
    return processed
