"""Requests that want the same new item at the same time: one of them processes it, whoever fails or leaves."""

from __future__ import annotations

import asyncio
import random
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from inset.cache.base import ProcessorCacheFront
from inset.errors import MediaDecodeError
from inset.processing.processor import MultiModalProcessor
from inset.testing.image_requests import finish, image_inputs

MakeProcessor = Callable[..., MultiModalProcessor]
MakePng = Callable[..., bytes]
TIME_LIMIT_SECONDS = 30.0


def test_sixteen_requests_with_one_new_picture_decode_and_materialise_once(
    make_processor: MakeProcessor, cache: ProcessorCacheFront, png: MakePng, work: Any
) -> None:
    processor = make_processor(cache)
    work.may_go_on.clear()
    submitted = threading.Barrier(16)

    def run(number: int) -> Any:
        with processor.apply_phase1(image_inputs(png(), request_id=str(number))) as state:
            submitted.wait(TIME_LIMIT_SECONDS)
            work.may_go_on.set()
            state.wait_decodes()
            return processor.apply_phase2(state)

    with ThreadPoolExecutor(16) as threads:
        prompts = list(threads.map(run, range(16)))
    assert (work.num_decodes, work.num_materialised) == (1, 1)
    assert len({prompt.mm_hashes["image"][0] for prompt in prompts}) == 1


def test_async_requests_with_one_new_picture_decode_once(
    make_processor: MakeProcessor, cache: ProcessorCacheFront, png: MakePng, work: Any
) -> None:
    processor = make_processor(cache)

    async def run(number: int) -> Any:
        with processor.apply_phase1(image_inputs([png(), png(seed=number % 3)], request_id=str(number))) as state:
            await state.wait_decodes_async()
            return processor.apply_phase2(state)

    async def scenario() -> None:
        work.may_go_on.clear()
        tasks = [asyncio.ensure_future(run(number)) for number in range(12)]
        await asyncio.sleep(0)
        work.may_go_on.set()
        await asyncio.wait_for(asyncio.gather(*tasks), TIME_LIMIT_SECONDS)

    asyncio.run(scenario())
    assert work.num_decodes == 3


def test_when_the_leader_goes_away_the_next_one_decodes(
    make_processor: MakeProcessor, cache: ProcessorCacheFront, png: MakePng, work: Any, pool: Any
) -> None:
    processor = make_processor(cache)
    held = threading.Event()
    busy = [pool.submit("image", lambda: held.wait(TIME_LIMIT_SECONDS)) for _ in range(4)]  # the leader's job stays in the queue
    leader = processor.apply_phase1(image_inputs(png(), request_id="leader"))
    with processor.apply_phase1(image_inputs(png(), request_id="follower")) as follower:
        leader.close()
        held.set()
        follower.wait_decodes()
        assert processor.apply_phase2(follower).mm_hashes["image"]
    assert work.num_decodes == 1
    assert all(job.result(TIME_LIMIT_SECONDS) for job in busy)


def test_a_leader_that_is_closed_while_it_decodes_still_serves_its_followers(
    make_processor: MakeProcessor, cache: ProcessorCacheFront, png: MakePng, work: Any
) -> None:
    processor = make_processor(cache)
    work.may_go_on.clear()
    leader = processor.apply_phase1(image_inputs(png(), request_id="leader"))
    assert work.entered.wait(TIME_LIMIT_SECONDS)
    with processor.apply_phase1(image_inputs(png(), request_id="follower")) as follower:
        closing = threading.Thread(target=leader.close)
        closing.start()
        work.may_go_on.set()
        follower.wait_decodes()
        processor.apply_phase2(follower)
        closing.join(TIME_LIMIT_SECONDS)
    assert work.num_decodes == 1


@pytest.mark.parametrize("is_async", [True, False])
def test_all_waiting_is_done_before_the_failure_of_an_item_that_another_request_processes_is_raised(
    make_processor: MakeProcessor, cache: ProcessorCacheFront, png: MakePng, work: Any, *, is_async: bool
) -> None:
    """The first failure in request order is raised, also where this request met with a later one itself, and sooner."""
    processor = make_processor(cache)
    followed, own, whole = png(64, 64)[:-40], png(32, 32)[:-40], png()
    work.may_go_on.clear()
    with (
        processor.apply_phase1(image_inputs([followed, whole], request_id="leader")) as leader,
        processor.apply_phase1(image_inputs([followed, whole, own], request_id="follower")) as follower,
    ):
        work.may_go_on.set()
        wait: Callable[[], None] = (lambda: asyncio.run(follower.wait_decodes_async())) if is_async else follower.wait_decodes
        with pytest.raises(MediaDecodeError) as caught:
            wait()
        assert caught.value.item_index == 0
        assert follower.items[1].processed is not None
        with pytest.raises(MediaDecodeError):
            leader.wait_decodes()


def test_a_damaged_item_fails_every_request_at_its_own_position(
    make_processor: MakeProcessor, cache: ProcessorCacheFront, png: MakePng, work: Any
) -> None:
    processor = make_processor(cache)
    damaged = png(64, 64)[:-40]
    work.may_go_on.clear()
    with (
        processor.apply_phase1(image_inputs([damaged], request_id="a")) as first,
        processor.apply_phase1(image_inputs([png(), damaged], request_id="b")) as second,
    ):
        work.may_go_on.set()
        for state, position in ((second, 1), (first, 0)):
            with pytest.raises(MediaDecodeError) as caught:
                state.wait_decodes()
            assert (caught.value.modality, caught.value.item_index) == ("image", position)
    with pytest.raises(MediaDecodeError):
        processor.apply(image_inputs([damaged], request_id="c"))
    assert cache.stats.num_leases == 0


def test_a_hit_never_waits_behind_a_miss(make_processor: MakeProcessor, cache: ProcessorCacheFront, png: MakePng, work: Any) -> None:
    processor = make_processor(cache)
    finish(processor, image_inputs(png()))
    work.entered.clear()
    work.may_go_on.clear()
    missing = [processor.apply_phase1(image_inputs(png(seed=seed), request_id=str(seed))) for seed in range(1, 9)]
    assert work.entered.wait(TIME_LIMIT_SECONDS)
    assert finish(processor, image_inputs(png())).mm_hashes["image"]
    work.may_go_on.set()
    for state in missing:
        state.close()


def test_requests_that_lead_and_follow_each_other_never_wait_in_a_circle(
    make_processor: MakeProcessor, cache: ProcessorCacheFront, png: MakePng
) -> None:
    processor = make_processor(cache)
    random_ = random.Random(5)
    orders = [random_.sample(range(6), 4) for _ in range(60)]

    def run(number: int) -> bool:
        items = [png(seed=seed) for seed in orders[number]]
        finish(processor, image_inputs(items, request_id=str(number)))
        return True

    with ThreadPoolExecutor(8) as threads:
        jobs = [threads.submit(run, number) for number in range(len(orders))]
        assert all(job.result(TIME_LIMIT_SECONDS) for job in jobs)
    assert cache.stats.num_leases == 0
