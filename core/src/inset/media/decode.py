"""Decoding several items at once: submitted together, always drained, the first failure in the request's order reported."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import CancelledError, Future
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple, TypeAlias

from inset.errors import InsetError, MediaDecodeError, OverloadedError
from inset.media.budget import RequestBudget, Reservation
from inset.media.executor import MediaExecutor
from inset.media.ref import MediaRef

__all__ = [
    "DecodeErrorFactory",
    "DecodeItem",
    "DecodeJob",
    "collect_media_decodes",
    "collect_media_decodes_async",
    "make_decode_error",
    "submit_media_decodes",
]

DecodeErrorFactory: TypeAlias = Callable[[str, int, BaseException], Exception]
"""Takes modality, item index and what a decoder raised; returns what the caller raises from it."""


class DecodeItem(NamedTuple):
    """A reference to decode, and its place among the request's items of its modality, from 0."""

    modality: str
    item_index: int
    ref: MediaRef[Any]


@dataclass(frozen=True, slots=True)
class DecodeJob:
    """A decode that was submitted; `future` ends with the decoded media."""

    modality: str
    item_index: int
    future: Future[Any]


def submit_media_decodes(
    items: Iterable[DecodeItem], jobs: list[DecodeJob], *, executor: MediaExecutor, budget: RequestBudget | None = None
) -> None:
    """Submits the decode of every item that is not decoded yet, in the order given.

    Each job is appended to the caller's list at once, so that the caller can drain what runs when a later submission fails. The decoded
    size that an item's header announces is reserved first and stays reserved until the budget is closed; what decoding takes beside that is
    reserved until it has ended.

    Raises:
        TooLargeError: An item, or the items of the request together, would decode to more than is allowed.
        OverloadedError: The process holds too much decoded media right now.
    """
    for modality, item_index, ref in items:
        if ref.is_decoded:
            continue
        decode = ref.decode
        if budget is not None:
            reservation = budget.reserve_decoded(
                ref.header.decoded_bytes, peak_bytes=ref.header.peak_bytes, modality=modality, item_index=item_index
            )
            decode = partial(_decode_reserved, ref, reservation)
        jobs.append(DecodeJob(modality, item_index, executor.submit(modality, decode)))


def _decode_reserved(ref: MediaRef[Any], reservation: Reservation) -> object:
    try:
        return ref.decode()
    finally:
        reservation.end_peak()


def make_decode_error(modality: str, item_index: int, error: BaseException) -> Exception:
    """Returns the error of a decode with its item's place; anything that is not one of ours becomes a `MediaDecodeError`."""
    if isinstance(error, InsetError):
        return error.locate(stage="decode", modality=modality, item_index=item_index)
    return MediaDecodeError("The media could not be decoded.", stage="decode", modality=modality, item_index=item_index)


def collect_media_decodes(jobs: Sequence[DecodeJob], make_error: DecodeErrorFactory = make_decode_error) -> None:
    """Waits until every job has ended, then raises the first failure in the order of the jobs, if there is one.

    Raises:
        MediaDecodeError: Or whatever `make_error` makes of the failure.
    """
    for job in jobs:
        with suppress(CancelledError):
            job.future.exception()  # waits; `concurrent.futures.wait` would not see the cancellations of a closing executor
    _raise_first_failure(jobs, make_error)


async def collect_media_decodes_async(jobs: Sequence[DecodeJob], make_error: DecodeErrorFactory = make_decode_error) -> None:
    """Does the same without holding up the event loop.

    A caller that is cancelled, even repeatedly, still waits for every job that runs, because a thread may be using the encoded bytes; jobs
    that have not begun are dropped. Then the cancellation goes on.

    Raises:
        MediaDecodeError: Or whatever `make_error` makes of the failure.
    """
    waiters = [asyncio.wrap_future(job.future) for job in jobs]
    cancellation: asyncio.CancelledError | None = None
    while not all(waiter.done() for waiter in waiters):
        try:
            await asyncio.wait(waiters)
        except asyncio.CancelledError as error:
            cancellation = error
            for job in jobs:
                job.future.cancel()  # does nothing to one that runs
    for waiter in waiters:
        if not waiter.cancelled():
            waiter.exception()  # marks it as seen: the failure is raised from the job
    if cancellation is not None:
        raise cancellation
    _raise_first_failure(jobs, make_error)


def _raise_first_failure(jobs: Sequence[DecodeJob], make_error: DecodeErrorFactory) -> None:
    for job in jobs:
        if job.future.cancelled():
            raise OverloadedError("Decoding was given up because this process is closing.", stage="decode")
        error = job.future.exception()
        if error is not None:
            failure = make_error(job.modality, job.item_index, error)
            if failure is error:
                raise failure
            raise failure from error
