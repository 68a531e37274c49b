"""Tests of both phases with a processor cache: hits, restarts, resets, cancellations."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any

import numpy as np

from inset.cache.base import ProcessorCacheFront
from inset.cache.lru import LruCacheFront
from inset.cache.processor_only import ProcessorOnlyCacheFront
from inset.identity import DecodeSpec
from inset.media.decoded import ImagePixels, VideoFrames
from inset.media.header import MediaHeader
from inset.media.ref import MediaRef
from inset.processing.apply_state import MultiModalApplyState
from inset.processing.inputs import ProcessorInputs
from inset.processing.phases import run_phase
from inset.processing.processor import MultiModalProcessor
from inset.testing.image_requests import finish, image_inputs

MakeProcessor = Callable[..., MultiModalProcessor]
MakePng = Callable[..., bytes]
TIME_LIMIT_SECONDS = 30.0


def test_a_hit_decodes_and_materialises_nothing(make_processor: MakeProcessor, cache: ProcessorCacheFront, png: MakePng, work: Any) -> None:
    processor = make_processor(cache)
    first = finish(processor, image_inputs(png()))
    second = finish(processor, image_inputs(png()))
    assert (work.num_decodes, work.num_materialised) == (1, 1)
    assert first.prompt_token_ids == second.prompt_token_ids
    assert first.mm_hashes == second.mm_hashes
    assert first.mm_plans == second.mm_plans
    assert (cache.stats.num_hits, cache.stats.num_misses, cache.stats.num_items) == (1, 1, 1)


def test_another_picture_of_the_same_size_is_another_item(
    make_processor: MakeProcessor, cache: ProcessorCacheFront, png: MakePng, work: Any
) -> None:
    processor = make_processor(cache)
    names = [finish(processor, image_inputs(png(seed=seed))).mm_hashes["image"][0] for seed in (1, 2, 1)]
    assert names[0] == names[2] != names[1]
    assert work.num_materialised == 2


def test_a_salt_separates_what_is_cached(make_processor: MakeProcessor, cache: ProcessorCacheFront, png: MakePng, work: Any) -> None:
    processor = make_processor(cache)
    for salt in (None, "a", "b", "a"):
        finish(processor, image_inputs(png(), cache_salt=salt))
    assert work.num_materialised == 3


def test_skipping_the_cache_neither_reads_nor_fills_it(
    make_processor: MakeProcessor, cache: ProcessorCacheFront, png: MakePng, work: Any
) -> None:
    processor = make_processor(cache)
    finish(processor, image_inputs(png()))
    prompt = processor.apply(image_inputs(png(), skip_mm_cache=True))
    processor.apply(image_inputs(png(seed=3), skip_mm_cache=True))
    assert prompt.mm_kwargs["image"][0] is not None
    assert (work.num_decodes, cache.stats.num_items) == (3, 1)


def test_a_request_with_embeddings_takes_the_way_without_cache(make_processor: MakeProcessor, cache: ProcessorCacheFront) -> None:
    processor = make_processor(cache)
    prompt = processor.apply(image_inputs([np.ones((2, 4), np.float32)]))
    assert prompt.mm_kwargs["image"][0] is not None
    assert cache.stats.num_items == 0


def test_one_item_twice_and_an_item_larger_than_the_cache_get_their_tensors(
    make_processor: MakeProcessor, cache: ProcessorCacheFront, png: MakePng, work: Any
) -> None:
    processor = make_processor(cache)
    finish(processor, image_inputs([png(), png()]))
    assert work.num_materialised == 1
    large = finish(processor, image_inputs([png(1000, 500)]))
    [tensors] = large.mm_kwargs["image"]
    assert tensors is not None
    assert tensors["pixel_values"].shape == (500, 1000, 3)


def test_a_restart_decodes_again_what_the_engine_did_not_have(make_processor: MakeProcessor, png: MakePng, work: Any) -> None:
    cache = LruCacheFront(capacity_bytes=1024**2)
    processor = make_processor(cache)
    finish(processor, image_inputs(png()))
    with processor.apply_phase1(image_inputs(png(), request_id="again")) as state:
        state.wait_decodes()
        first = processor.apply_phase2(state)
        assert first.mm_kwargs["image"] == [None]
        cache.release("again")
        cache.reset()
        processor.restart(state)
        state.wait_decodes()
        second = processor.apply_phase2(state)
    assert work.num_decodes == 2
    assert second.prompt_token_ids == first.prompt_token_ids
    assert second.mm_hashes == first.mm_hashes


def test_a_b_a_in_any_interleaving_gives_the_right_pixels(make_processor: MakeProcessor, png: MakePng) -> None:
    """The cache holds two of five pictures, so that everything is evicted again and again."""
    cache = ProcessorOnlyCacheFront(capacity_bytes=2 * 16 * 8 * 3)
    processor = make_processor(cache)
    expected: dict[int, ImagePixels] = {}
    for seed in range(5):
        item = make_processor().apply(image_inputs(png(seed=seed))).mm_kwargs["image"][0]
        assert item is not None
        expected[seed] = item["pixel_values"]
    random_ = random.Random(3)
    requests = [random_.choices(range(5), k=random_.randint(1, 3)) for _ in range(120)]

    def run(number: int) -> None:
        seeds = requests[number]
        prompt = finish(processor, image_inputs([png(seed=seed) for seed in seeds], request_id=str(number)))
        for seed, item in zip(seeds, prompt.mm_kwargs["image"], strict=True):
            assert item is not None
            np.testing.assert_array_equal(item["pixel_values"], expected[seed])

    with ThreadPoolExecutor(6) as threads:
        for job in [threads.submit(run, number) for number in range(len(requests))]:
            job.result(TIME_LIMIT_SECONDS)
    assert cache.stats.num_evictions > 0
    assert cache.stats.num_leases == 0


def test_references_keep_their_bytes_until_the_state_closes(
    make_processor: MakeProcessor, cache: ProcessorCacheFront, png: MakePng
) -> None:
    processor = make_processor(cache)
    finish(processor, image_inputs(png()))
    with processor.apply_phase1(image_inputs(png())) as state:
        raw = state.mm_items["image"].get_raw(0)
        assert isinstance(raw, MediaRef)
        state.wait_decodes()
        processor.apply_phase2(state)
        assert raw.data
        assert not raw.is_decoded
    assert not raw.data


def test_a_reset_between_the_phases_changes_no_answer(make_processor: MakeProcessor, cache: ProcessorCacheFront, png: MakePng) -> None:
    processor = make_processor(cache)
    expected = finish(processor, image_inputs([png(), png(seed=1)]))
    with processor.apply_phase1(image_inputs([png(), png(seed=2)], request_id="during")) as state:
        cache.reset()
        state.wait_decodes()
        prompt = processor.apply_phase2(state)
    assert prompt.mm_hashes["image"][0] == expected.mm_hashes["image"][0]
    cache.release("during")
    assert finish(processor, image_inputs([png(), png(seed=1)])).mm_hashes == expected.mm_hashes
    assert cache.stats.num_leases == 0


def test_many_images_in_one_prompt_keep_their_order(
    make_processor: MakeProcessor, cache: ProcessorCacheFront, png: MakePng, work: Any
) -> None:
    processor = make_processor(cache)
    seeds = [number % 7 for number in range(300)]
    prompt = finish(processor, image_inputs([png(8 + 8 * seed, seed=seed) for seed in seeds]))
    assert work.num_materialised == 7
    assert [plan.num_embeds for plan in prompt.mm_plans["image"]] == [seed + 1 for seed in seeds]
    offsets = [placeholder.offset for placeholder in prompt.mm_placeholders["image"]]
    assert offsets == [1 + sum(seed + 2 for seed in seeds[:index]) for index in range(300)]
    names = prompt.mm_hashes["image"]
    assert all((names[index] == names[other]) == (seeds[index] == seeds[other]) for index in range(9) for other in range(300))


def test_a_video_that_another_request_cached_meanwhile_gets_the_places_of_its_exact_plan(
    make_processor: MakeProcessor, cache: ProcessorCacheFront
) -> None:
    processor = make_processor(cache)
    video = VideoFrames(
        frames=np.zeros((3, 8, 16, 3), np.uint8),
        total_num_frames=3,
        fps=1.0,
        duration_seconds=3.0,
        frame_indices=(0, 1, 2),
        timestamps_seconds=(0.0, 1.0, 2.0),
    )
    header = MediaHeader(modality="video", width=16, height=8, num_frames=5)  # it promises more than it holds
    ref = MediaRef(b"v" * 32, DecodeSpec({}), data=b"video", header=header, load=lambda: video)

    def request(request_id: str) -> ProcessorInputs:
        return ProcessorInputs(request_id=request_id, prompt="<video>", mm_data={"video": [ref]}, add_special_tokens=False)

    lengths: list[int] = []

    def check(plans: object, num_prompt_tokens: int) -> None:
        lengths.append(num_prompt_tokens)
        if len(lengths) == 1:  # between look-up and submission
            finish(processor, request("other"))

    with processor.apply_phase1(request("r"), check=check) as state:
        state.wait_decodes()
        prompt = processor.apply_phase2(state, check=check)
    assert lengths == [15, 9]
    assert len(prompt.prompt_token_ids) == prompt.mm_placeholders["video"][0].length == 9


def test_requests_that_are_cancelled_at_any_moment_leave_nothing_behind(
    make_processor: MakeProcessor, cache: ProcessorCacheFront, png: MakePng
) -> None:
    processor = make_processor(cache)
    random_ = random.Random(11)
    requests = [random_.choices(range(8), k=random_.randint(1, 4)) for _ in range(120)]

    async def run(number: int) -> bool:
        items = [png(seed=seed) for seed in requests[number]]
        phase1 = partial(processor.apply_phase1, image_inputs(items, request_id=str(number)))
        with await run_phase(threads, phase1, undo=MultiModalApplyState.close) as state:
            await state.wait_decodes_async()
            phase2 = partial(processor.apply_phase2, state)
            prompt = await run_phase(threads, phase2, undo=lambda _: cache.release(str(number)))
            cache.release(str(number))
            return len(prompt.mm_hashes["image"]) == len(items)

    async def scenario() -> list[Any]:
        tasks = []
        for number in range(len(requests)):
            tasks.append(asyncio.ensure_future(run(number)))
            await asyncio.sleep(0)
            if number % 3 == 0:
                random_.choice(tasks).cancel()
            if number % 20 == 0:
                cache.reset()
        return await asyncio.wait_for(asyncio.gather(*tasks, return_exceptions=True), TIME_LIMIT_SECONDS)

    with ThreadPoolExecutor(4) as threads:
        results = asyncio.run(scenario())
    assert {type(result) for result in results} <= {bool, asyncio.CancelledError}
    assert all(result for result in results if isinstance(result, bool))
    assert cache.stats.num_leases == 0
