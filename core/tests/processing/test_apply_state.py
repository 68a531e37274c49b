"""The phases of a request, its waits and its end: references, reservations and work that runs."""

from __future__ import annotations

import asyncio
import gc
import threading
import weakref
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from inset.config import MediaConfig
from inset.errors import (
    InvariantError,
    OverloadedError,
    PlaceholderError,
    TooLargeError,
)
from inset.identity import DecodeSpec
from inset.inputs import MediaIOFactory
from inset.media.budget import ProcessBudget, RequestBudget
from inset.media.ref import MediaRef
from inset.processing.given_media import image_header, video_frames, video_header
from inset.processing.inputs import ProcessorInputs
from inset.processing.processor import MultiModalProcessor

MakeProcessor = Callable[..., MultiModalProcessor]
MakePng = Callable[..., bytes]
TIME_LIMIT_SECONDS = 30.0


def inputs(prompt: str = "<image>", **fields: Any) -> ProcessorInputs:
    return ProcessorInputs(**{"request_id": "r", "prompt": prompt, "add_special_tokens": False, **fields})


def test_the_callers_references_stay_usable_and_the_states_own_are_released(
    make_processor: MakeProcessor, png: MakePng, image_io: MediaIOFactory
) -> None:
    ref = image_io({}, MediaConfig()).load_bytes_ref(png())
    with make_processor().apply_phase1(inputs(mm_data={"image": [ref]})) as state:
        own = state.mm_items["image"].get_raw(0)
        assert isinstance(own, MediaRef)
        state.wait_decodes()
        assert own.data
    assert not own.data
    assert ref.data
    assert ref.decode().shape == (8, 16, 3)
    state.close()


class Watched:
    """Decodes to something new each time, and watches what lives of it."""

    def __init__(self, modality: str) -> None:
        self.modality = modality
        self.arrays: list[weakref.ref[Any]] = []

    def __call__(self) -> Any:
        pixels = np.zeros((8, 16, 3), np.uint8) if self.modality == "image" else np.zeros((2, 8, 16, 3), np.uint8)
        self.arrays.append(weakref.ref(pixels))
        return pixels if self.modality == "image" else video_frames(pixels)

    @property
    def num_alive(self) -> int:
        gc.collect()
        return sum(array() is not None for array in self.arrays)

    def make_ref(self) -> MediaRef[Any]:
        shape = (8, 16, 3) if self.modality == "image" else (2, 8, 16, 3)
        header = (
            image_header(np.zeros(shape, np.uint8)) if self.modality == "image" else video_header(video_frames(np.zeros(shape, np.uint8)))
        )
        return MediaRef(self.modality.encode() * 8, DecodeSpec({}), data=b"encoded", header=header, load=self)


@pytest.mark.parametrize("modality", ["image", "video"])
@pytest.mark.parametrize("is_mapped", [False, True])
def test_decoded_media_goes_with_its_reservation_while_the_request_goes_on(
    make_processor: MakeProcessor, modality: str, is_mapped: bool
) -> None:
    watched, process = Watched(modality), ProcessBudget(1024**2)
    ref = watched.make_ref()
    given = ref.map(lambda decoded: decoded, step=1) if is_mapped else ref
    processor = make_processor()
    with RequestBudget(MediaConfig(), process) as budget:
        request = inputs(f"<{modality}>" * 2, mm_data={modality: [given, given]}, budget=budget)
        with processor.apply_phase1(request) as state:
            state.wait_decodes()
            prompt = processor.apply_phase2(state)
            assert (process.decoded_bytes, watched.num_alive, len(watched.arrays)) == (0, 0, 1)
    assert len(prompt.mm_kwargs[modality]) == 2
    assert not given.is_decoded


def test_media_that_came_decoded_goes_when_the_state_closes(make_processor: MakeProcessor) -> None:
    processor = make_processor()
    pixels = np.zeros((8, 16, 3), np.uint8)
    watched = weakref.ref(pixels)
    state = processor.apply_phase1(inputs(mm_data={"image": [pixels]}))
    del pixels
    with state:
        state.wait_decodes()
        processor.apply_phase2(state)
    gc.collect()
    assert watched() is None
    assert not state.items


def test_an_item_that_was_processed_can_be_decoded_again_until_the_state_closes(make_processor: MakeProcessor) -> None:
    watched = Watched("image")
    processor = make_processor()
    with processor.apply_phase1(inputs(mm_data={"image": [watched.make_ref()]})) as state:
        state.wait_decodes()
        first = processor.apply_phase2(state)
        state.items[0].processed = None  # as of a hit that the engine half of the cache has lost
        processor.restart(state)
        state.wait_decodes()
        second = processor.apply_phase2(state)
    assert len(watched.arrays) == 2
    assert first.mm_hashes == second.mm_hashes


def test_phase_1_that_fails_releases_what_it_forked(make_processor: MakeProcessor, png: MakePng, image_io: MediaIOFactory) -> None:
    released: list[bool] = []

    class Watched(MediaRef[Any]):
        def fork(self) -> Watched:
            return self

        def release(self) -> None:
            released.append(True)
            super().release()

    whole = image_io({}, MediaConfig()).load_bytes_ref(png())
    ref = Watched(whole.key, whole.spec, data=whole.data, header=whole.header, load=whole.decode)
    with pytest.raises(PlaceholderError):
        make_processor().apply_phase1(inputs("no marker", mm_data={"image": [ref]}))
    assert released == [True]


def test_phase_1_submits_and_does_not_wait(make_processor: MakeProcessor, png: MakePng, work: Any) -> None:
    work.may_go_on.clear()
    processor = make_processor()
    with processor.apply_phase1(inputs(mm_data={"image": png()})) as state:
        assert work.entered.wait(TIME_LIMIT_SECONDS)
        with pytest.raises(InvariantError, match="wait for the decodes"):
            processor.apply_phase2(state)
        work.may_go_on.set()
        state.wait_decodes()
        assert processor.apply_phase2(state).mm_kwargs["image"][0] is not None
        assert set(state.stage_seconds) == {("decode", "image"), ("materialize", "image")}


def test_a_cancelled_wait_still_waits_for_decodes_that_run_even_if_cancelled_again(
    make_processor: MakeProcessor, png: MakePng, work: Any
) -> None:
    async def scenario() -> None:
        work.may_go_on.clear()
        state = make_processor().apply_phase1(inputs(mm_data={"image": png()}))
        assert await asyncio.to_thread(work.entered.wait, TIME_LIMIT_SECONDS)
        task = asyncio.ensure_future(state.wait_decodes_async())
        for _ in range(3):
            await asyncio.sleep(0)
            task.cancel()
            done, _ = await asyncio.wait([task], timeout=0.01)
            assert not done
        raw = state.mm_items["image"].get_raw(0)
        assert isinstance(raw, MediaRef)
        assert raw.data
        work.may_go_on.set()
        with pytest.raises(asyncio.CancelledError):
            await asyncio.wait_for(task, TIME_LIMIT_SECONDS)
        state.close()
        assert not raw.data

    asyncio.run(scenario())


def test_closing_waits_for_a_decode_that_runs(make_processor: MakeProcessor, png: MakePng, work: Any) -> None:
    work.may_go_on.clear()
    state = make_processor().apply_phase1(inputs(mm_data={"image": png()}))
    assert work.entered.wait(TIME_LIMIT_SECONDS)
    closing = threading.Thread(target=state.close)
    closing.start()
    raw = state.mm_items["image"].get_raw(0)
    assert isinstance(raw, MediaRef)
    assert raw.data
    work.may_go_on.set()
    closing.join(TIME_LIMIT_SECONDS)
    assert not closing.is_alive()
    assert not raw.data


def test_async_waiting_gives_the_same_prompt(make_processor: MakeProcessor, png: MakePng) -> None:
    processor = make_processor()
    request = inputs("<image><image>", mm_data={"image": [png(16), png(40)]})

    async def scenario() -> Any:
        with processor.apply_phase1(request) as state:
            await state.wait_decodes_async()
            return processor.apply_phase2(state)

    ours, theirs = asyncio.run(scenario()), processor.apply(request)
    assert ours.prompt_token_ids == theirs.prompt_token_ids
    assert ours.mm_hashes == theirs.mm_hashes
    for first, second in zip(ours.mm_kwargs["image"], theirs.mm_kwargs["image"], strict=True):
        assert first is not None
        assert second is not None
        np.testing.assert_array_equal(first["pixel_values"], second["pixel_values"])


def test_decoded_bytes_and_intermediates_are_reserved_and_given_back(make_processor: MakeProcessor, png: MakePng) -> None:
    processor = make_processor()
    process = ProcessBudget(4 * 1024**3)
    needed = 2 * 16 * 8 * 3
    with RequestBudget(MediaConfig(max_item_decoded_bytes=needed), process) as budget:
        processor.apply(inputs(mm_data={"image": png()}, budget=budget))
        assert process.decoded_bytes == 0
    with RequestBudget(MediaConfig(max_item_decoded_bytes=needed - 1), process) as budget:
        with pytest.raises(TooLargeError) as caught:
            processor.apply(inputs("<image><image>", mm_data={"image": [png(8), png()]}, budget=budget))
    assert (caught.value.status, caught.value.modality, caught.value.item_index) == (413, "image", 1)
    assert process.decoded_bytes == 0


def test_a_core_that_is_shutting_down_is_503(make_processor: MakeProcessor, png: MakePng, pool: Any, work: Any) -> None:
    processor = make_processor()
    work.may_go_on.clear()
    state = processor.apply_phase1(inputs("<image>" * 6, mm_data={"image": [png(seed=seed) for seed in range(6)]}))
    assert work.entered.wait(TIME_LIMIT_SECONDS)
    closing = threading.Thread(target=pool.close)
    closing.start()
    while True:  # until the pool takes no more work
        try:
            processor.apply_phase1(inputs(mm_data={"image": png()})).close()
        except OverloadedError:
            break
    work.may_go_on.set()
    with pytest.raises(OverloadedError, match="closing"):
        state.wait_decodes()
    closing.join(TIME_LIMIT_SECONDS)
    state.close()
