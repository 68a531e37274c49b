"""Decoding several items: submitted together, drained whatever happens, first failure in the request's order."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Iterator

import pytest

from inset.config import MediaConfig
from inset.errors import MediaDecodeError, OverloadedError, TooLargeError
from inset.identity import DecodeSpec
from inset.media.budget import ProcessBudget, RequestBudget
from inset.media.decode import (
    DecodeItem,
    DecodeJob,
    collect_media_decodes,
    collect_media_decodes_async,
    make_decode_error,
    submit_media_decodes,
)
from inset.media.executor import MediaExecutor
from inset.media.header import MediaHeader
from inset.media.ref import MediaRef

TIME_LIMIT_SECONDS = 30.0


class Gate:
    """A decode that can be held, and that may fail."""

    def __init__(self, error: Exception | None = None, *, is_open: bool = True) -> None:
        self.entered = threading.Event()
        self.may_leave = threading.Event()
        self.has_left = threading.Event()
        self.error = error
        if is_open:
            self.may_leave.set()

    def __call__(self) -> str:
        self.entered.set()
        assert self.may_leave.wait(TIME_LIMIT_SECONDS)
        self.has_left.set()
        if self.error is not None:
            raise self.error
        return "decoded"


def make_item(
    load: Callable[[], str], *, item_index: int = 0, modality: str = "image", decoded_bytes: int = 10, peak_bytes: int = 0
) -> DecodeItem:
    header = MediaHeader(modality=modality, decoded_bytes=decoded_bytes, peak_bytes=peak_bytes)
    return DecodeItem(modality, item_index, MediaRef(b"k" * 32, DecodeSpec({}), data=b"d", header=header, load=load))


@pytest.fixture
def executor() -> Iterator[MediaExecutor]:
    with MediaExecutor(image_threads=4, video_threads=1) as executor:
        yield executor


def submit(executor: MediaExecutor, *items: DecodeItem, budget: RequestBudget | None = None) -> list[DecodeJob]:
    jobs: list[DecodeJob] = []
    submit_media_decodes(items, jobs, executor=executor, budget=budget)
    return jobs


def collect(jobs: list[DecodeJob], *, is_async: bool) -> None:
    if is_async:
        asyncio.run(asyncio.wait_for(collect_media_decodes_async(jobs), TIME_LIMIT_SECONDS))
    else:
        collect_media_decodes(jobs)


both_ways = pytest.mark.parametrize("is_async", [False, True], ids=["sync", "async"])


@both_ways
def test_items_are_decoded_when_collecting_returns(executor: MediaExecutor, is_async: bool) -> None:
    items = [make_item(Gate(), item_index=index, modality=modality) for index, modality in enumerate(("image", "video", "audio"))]
    jobs = submit(executor, *items)
    collect(jobs, is_async=is_async)
    assert all(item.ref.is_decoded for item in items)
    assert [(job.modality, job.item_index) for job in jobs] == [("image", 0), ("video", 1), ("audio", 2)]


@both_ways
def test_nothing_to_decode_is_nothing_to_wait_for(executor: MediaExecutor, is_async: bool) -> None:
    item = make_item(Gate())
    item.ref.decode()
    jobs = submit(executor, item)
    assert jobs == []
    collect(jobs, is_async=is_async)


@both_ways
def test_first_failure_in_the_requests_order_is_raised_however_late_it_comes(executor: MediaExecutor, is_async: bool) -> None:
    early, late = Gate(ValueError("early"), is_open=False), Gate(ValueError("late"))
    jobs = submit(executor, make_item(Gate(), item_index=0), make_item(early, item_index=4), make_item(late, item_index=7))
    assert late.has_left.wait(TIME_LIMIT_SECONDS)
    early.may_leave.set()
    with pytest.raises(MediaDecodeError) as caught:
        collect(jobs, is_async=is_async)
    assert (caught.value.modality, caught.value.item_index, caught.value.stage, caught.value.status) == ("image", 4, "decode", 422)
    assert str(caught.value.__cause__) == "early"


@both_ways
def test_all_jobs_have_ended_before_a_failure_is_raised(executor: MediaExecutor, is_async: bool) -> None:
    fails, slow = Gate(ValueError("damaged")), Gate(is_open=False)
    jobs = submit(executor, make_item(fails), make_item(slow, item_index=1))
    assert fails.has_left.wait(TIME_LIMIT_SECONDS)
    opener = threading.Timer(0.05, slow.may_leave.set)
    opener.start()
    with pytest.raises(MediaDecodeError):
        collect(jobs, is_async=is_async)
    assert slow.has_left.is_set()


@both_ways
def test_errors_of_ours_keep_their_class_and_gain_their_place(executor: MediaExecutor, is_async: bool) -> None:
    jobs = submit(executor, make_item(Gate(TooLargeError("Too long.")), item_index=2, modality="video"))
    with pytest.raises(TooLargeError) as caught:
        collect(jobs, is_async=is_async)
    assert (caught.value.modality, caught.value.item_index, caught.value.stage) == ("video", 2, "decode")


@both_ways
def test_jobs_that_a_closing_executor_drops_are_our_own_fault(is_async: bool) -> None:
    executor = MediaExecutor(image_threads=1, video_threads=1)
    running = Gate(is_open=False)
    jobs = submit(executor, make_item(running), make_item(Gate(), item_index=1))
    assert running.entered.wait(TIME_LIMIT_SECONDS)
    closer = threading.Thread(target=executor.close)
    dropped = threading.Event()
    jobs[1].future.add_done_callback(lambda _: dropped.set())
    closer.start()
    assert dropped.wait(TIME_LIMIT_SECONDS)
    running.may_leave.set()
    closer.join(TIME_LIMIT_SECONDS)
    with pytest.raises(OverloadedError):
        collect(jobs, is_async=is_async)


def test_callers_error_factory_makes_the_error(executor: MediaExecutor) -> None:
    jobs = submit(executor, make_item(Gate(ValueError("damaged")), item_index=3))
    with pytest.raises(LookupError, match="image 3 damaged") as caught:
        collect_media_decodes(jobs, lambda modality, index, error: LookupError(f"{modality} {index} {error}"))
    assert isinstance(caught.value.__cause__, ValueError)


def test_default_error_says_nothing_of_the_decoders_own_words() -> None:
    error = make_decode_error("image", 0, ValueError("/secret/path"))
    assert "secret" not in str(error)


class TestBudget:
    CONFIG = MediaConfig(max_item_decoded_bytes=50, max_request_decoded_bytes=80)

    def test_announced_sizes_are_reserved_until_the_budget_is_closed(self, executor: MediaExecutor) -> None:
        process = ProcessBudget(1000)
        with RequestBudget(self.CONFIG, process) as budget:
            collect_media_decodes(submit(executor, make_item(Gate(), decoded_bytes=30), make_item(Gate(), decoded_bytes=20), budget=budget))
            assert process.decoded_bytes == 50
        assert process.decoded_bytes == 0

    def test_what_decoding_takes_beside_is_reserved_until_it_ends(self, executor: MediaExecutor) -> None:
        process = ProcessBudget(1000)
        gate = Gate(is_open=False)
        with RequestBudget(self.CONFIG, process) as budget:
            jobs = submit(executor, make_item(gate, decoded_bytes=30, peak_bytes=300), budget=budget)
            assert gate.entered.wait(TIME_LIMIT_SECONDS)
            assert (budget.decoded_bytes, process.decoded_bytes) == (30, 300)
            gate.may_leave.set()
            collect_media_decodes(jobs)
            assert process.decoded_bytes == 30
        assert process.decoded_bytes == 0

    def test_a_refusal_leaves_earlier_jobs_in_the_callers_list(self, executor: MediaExecutor) -> None:
        jobs: list[DecodeJob] = []
        first, never = make_item(Gate(), decoded_bytes=50), make_item(Gate(), item_index=1, decoded_bytes=40)
        with RequestBudget(self.CONFIG, ProcessBudget(1000)) as budget, pytest.raises(TooLargeError) as caught:
            submit_media_decodes([first, never], jobs, executor=executor, budget=budget)
        assert caught.value.item_index == 1
        collect_media_decodes(jobs)
        assert (len(jobs), first.ref.is_decoded, never.ref.is_decoded) == (1, True, False)

    def test_decoded_items_reserve_nothing(self, executor: MediaExecutor) -> None:
        item = make_item(Gate(), decoded_bytes=999)
        item.ref.decode()
        with RequestBudget(self.CONFIG, ProcessBudget(1000)) as budget:
            assert submit(executor, item, budget=budget) == []
            assert budget.decoded_bytes == 0


class TestCancellation:
    def test_repeated_cancellation_still_waits_for_what_runs(self, executor: MediaExecutor) -> None:
        gate = Gate(is_open=False)
        item = make_item(gate)

        async def scenario() -> None:
            task = asyncio.create_task(collect_media_decodes_async(submit(executor, item)))
            assert await asyncio.to_thread(gate.entered.wait, TIME_LIMIT_SECONDS)
            for _ in range(3):
                task.cancel()
                await asyncio.sleep(0)
                assert not task.done()
            gate.may_leave.set()
            with pytest.raises(asyncio.CancelledError):
                await asyncio.wait_for(asyncio.shield(task), TIME_LIMIT_SECONDS)
            assert gate.has_left.is_set()

        asyncio.run(scenario())
        assert item.ref.is_decoded

    def test_jobs_that_have_not_begun_are_dropped(self) -> None:
        gate, waiting = Gate(is_open=False), Gate()

        async def scenario(executor: MediaExecutor) -> None:
            task = asyncio.create_task(collect_media_decodes_async(submit(executor, make_item(gate), make_item(waiting, item_index=1))))
            assert await asyncio.to_thread(gate.entered.wait, TIME_LIMIT_SECONDS)
            task.cancel()
            await asyncio.sleep(0)
            gate.may_leave.set()
            with pytest.raises(asyncio.CancelledError):
                await task

        with MediaExecutor(image_threads=1, video_threads=1) as executor:
            asyncio.run(scenario(executor))
        assert not waiting.entered.is_set()

    def test_cancelled_request_leaves_other_requests_of_the_same_media_alone(self, executor: MediaExecutor) -> None:
        gate = Gate(is_open=False)
        item = make_item(gate)
        other = item._replace(ref=item.ref.fork())

        async def scenario() -> None:
            first = asyncio.create_task(collect_media_decodes_async(submit(executor, item)))
            second = asyncio.create_task(collect_media_decodes_async(submit(executor, other)))
            assert await asyncio.to_thread(gate.entered.wait, TIME_LIMIT_SECONDS)
            first.cancel()
            await asyncio.sleep(0)
            gate.may_leave.set()
            await asyncio.wait_for(second, TIME_LIMIT_SECONDS)
            with pytest.raises(asyncio.CancelledError):
                await first

        asyncio.run(scenario())
        assert other.ref.is_decoded
