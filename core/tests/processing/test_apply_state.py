"""The phases of a request, its waits and its end: references, reservations and work that runs."""

from __future__ import annotations

import asyncio
import threading
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
from inset.inputs import MediaIOFactory
from inset.media.budget import ProcessBudget, RequestBudget
from inset.media.ref import MediaRef
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
    assert own.decode() is ref.decode()
    state.close()


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
