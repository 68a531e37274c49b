"""Tests of both phases without a cache."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import pytest
from PIL import Image

from inset.errors import (
    InvalidRequestError,
    InvariantError,
    ItemLimitError,
    MediaDecodeError,
    MediaNotCachedError,
    OverloadedError,
    PlaceholderError,
)
from inset.identity import DecodeSpec
from inset.inputs import ItemPlan, PlaceholderRange
from inset.media.decoded import VideoFrames
from inset.media.header import MediaHeader
from inset.media.ref import MediaRef
from inset.processing.inputs import ProcessorInputs
from inset.processing.processor import MultiModalProcessor
from inset.processing.tokenizer import Tokenizer

MakeProcessor = Callable[..., MultiModalProcessor]
MakePng = Callable[..., bytes]


def inputs(prompt: str = "<image>", **fields: Any) -> ProcessorInputs:
    return ProcessorInputs(**{"request_id": "r", "prompt": prompt, "add_special_tokens": False, **fields})


def video_ref(
    num_frames: int, *, claims: int | None = None, width: int = 16, load: Callable[[], VideoFrames] | None = None
) -> MediaRef[VideoFrames]:
    """A video whose header may promise more frames, or another width, than decoding gives."""
    video = VideoFrames(
        frames=np.zeros((num_frames, 8, 16, 3), np.uint8),
        total_num_frames=num_frames,
        fps=1.0,
        duration_seconds=float(num_frames),
        frame_indices=tuple(range(num_frames)),
        timestamps_seconds=tuple(map(float, range(num_frames))),
    )
    header = MediaHeader(modality="video", width=width, height=8, num_frames=claims or num_frames, decoded_bytes=384 * num_frames)
    return MediaRef(b"v" * 32, DecodeSpec({}), data=b"video", header=header, load=load or (lambda: video))


def test_images_expand_to_their_places_in_the_prompt(make_processor: MakeProcessor, tokenizer: Tokenizer, png: MakePng) -> None:
    prompt = make_processor().apply(inputs("a<image><image>b", mm_data={"image": [png(16), png(24)]}))
    ranges = prompt.mm_placeholders["image"]
    start = len(tokenizer.encode("a"))
    assert ranges == [PlaceholderRange(start, 3, ((0, 2),)), PlaceholderRange(start + 3, 4, ((0, 3),))]
    image, pad = tokenizer.token_to_id("<image>"), tokenizer.token_to_id("<|pad|>")
    assert list(prompt.prompt_token_ids) == [*tokenizer.encode("a"), image, image, pad, image, image, image, pad, *tokenizer.encode("b")]
    assert [plan.num_embeds for plan in prompt.mm_plans["image"]] == [2, 3]
    assert prompt.prompt_text == "a<image><image>b"
    arrays = [item["pixel_values"] for item in prompt.mm_kwargs["image"] if item is not None]
    assert [array.shape for array in arrays] == [(8, 16, 3), (8, 24, 3)]
    assert not any(array.flags.writeable for array in arrays)


def test_the_same_image_twice_is_processed_once_and_has_one_name(make_processor: MakeProcessor, png: MakePng, work: Any) -> None:
    prompt = make_processor().apply(inputs("<image><image>", mm_data={"image": [png(), png()]}))
    first, second = prompt.mm_hashes["image"]
    assert first == second
    assert (work.num_decodes, work.num_materialised) == (1, 1)
    assert all(item is not None for item in prompt.mm_kwargs["image"])


def test_images_and_videos_of_one_prompt_keep_their_order(make_processor: MakeProcessor, png: MakePng) -> None:
    mm_data = {"image": [png(16), png(8)], "video": [video_ref(2)]}
    prompt = make_processor().apply(inputs("<image><video><image>", mm_data=mm_data))
    offsets = {modality: [r.offset for r in ranges] for modality, ranges in prompt.mm_placeholders.items()}
    assert offsets == {"image": [0, 9], "video": [3]}


def test_text_alone_needs_no_media(make_processor: MakeProcessor, tokenizer: Tokenizer) -> None:
    prompt = make_processor().apply(inputs("what is", add_special_tokens=True))
    assert list(prompt.prompt_token_ids) == tokenizer.encode("what is", add_special_tokens=True)
    assert (prompt.mm_kwargs, prompt.mm_placeholders) == ({}, {})


def test_token_ids_are_taken_as_they_are(make_processor: MakeProcessor, tokenizer: Tokenizer, png: MakePng) -> None:
    token_ids = tokenizer.encode("<image>a")
    prompt = make_processor().apply(ProcessorInputs(request_id="r", prompt=token_ids, prompt_text="shown", mm_data={"image": png()}))
    assert prompt.prompt_text == "shown"
    assert list(prompt.prompt_token_ids)[3:] == token_ids[1:]


@pytest.mark.parametrize(("text", "num_images"), [("<image>", 0), ("a", 1), ("<image>", 2), ("<image><image>", 1), ("<video>", 0)])
def test_a_prompt_with_other_numbers_of_placeholders_decodes_nothing(
    make_processor: MakeProcessor, png: MakePng, work: Any, text: str, num_images: int
) -> None:
    with pytest.raises(PlaceholderError):
        make_processor().apply(inputs(text, mm_data={"image": [png() for _ in range(num_images)]}))
    assert work.num_decodes == 0


def test_plans_are_checked_before_anything_is_decoded(make_processor: MakeProcessor, png: MakePng, work: Any) -> None:
    seen: list[tuple[Mapping[str, Sequence[ItemPlan]], int]] = []

    def check(plans: Mapping[str, Sequence[ItemPlan]], num_prompt_tokens: int) -> None:
        seen.append((plans, num_prompt_tokens))
        raise ItemLimitError("too long")

    with pytest.raises(ItemLimitError, match="too long"):
        make_processor().apply(inputs(mm_data={"image": [png(80)]}), check=check)
    assert seen[0][0]["image"][0].num_tokens == seen[0][1] == 11
    assert work.num_decodes == 0


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"mm_data": {"image": [b""]}}, "empty"),
        ({"mm_data": {"video": [np.zeros((1, 8, 8, 3), np.uint8)] * 4}}, r"At most 3 video\(s\)"),
        ({"mm_processor_kwargs": {"dark": 1}}, "Unknown processor option"),
        ({"mm_uuids": {"image": ["a", "b"]}, "mm_data": {"image": [np.zeros((8, 8, 3), np.uint8)]}}, r"1 image\(s\) and 2 uuid"),
        ({"mm_data": {"image": [None]}}, "neither media nor a uuid"),
    ],
)
def test_a_malformed_request_is_the_clients_fault(make_processor: MakeProcessor, fields: dict[str, Any], message: str) -> None:
    with pytest.raises((InvalidRequestError, MediaDecodeError), match=message):
        make_processor().apply(inputs(**fields))


def test_an_option_that_is_out_of_range_names_its_item(make_processor: MakeProcessor, png: MakePng) -> None:
    with pytest.raises(InvalidRequestError, match="rows must be") as caught:
        make_processor().apply(inputs("<image><image>", mm_data={"image": [png(), png()]}, mm_processor_kwargs={"rows": 0}))
    assert (caught.value.stage, caught.value.modality, caught.value.item_index) == ("plan", "image", 0)


def test_damaged_media_is_422_with_its_place_and_all_decodes_end_first(make_processor: MakeProcessor, png: MakePng, work: Any) -> None:
    damaged = png(64, 64)[:-40]
    mm_data = {"image": [png(seed=1), damaged, png(seed=2), damaged]}
    with make_processor().apply_phase1(inputs("<image>" * 4, mm_data=mm_data)) as state:
        with pytest.raises(MediaDecodeError) as caught:
            state.wait_decodes()
        assert work.num_decodes == 3
    error = caught.value
    assert (error.status, error.stage, error.modality, error.item_index) == (422, "decode", "image", 1)


def test_a_decoder_that_raises_something_else_is_422_and_keeps_its_cause(make_processor: MakeProcessor) -> None:
    def load() -> VideoFrames:
        raise ValueError("/secret/path")

    with pytest.raises(MediaDecodeError, match=r"could not be decoded \(ValueError\)") as caught:
        make_processor().apply(inputs("<video>", mm_data={"video": [video_ref(1, load=load)]}))
    assert isinstance(caught.value.__cause__, ValueError)
    assert "secret" not in str(caught.value)


def test_a_pillow_image_that_was_cut_off_is_422(make_processor: MakeProcessor, png: MakePng) -> None:
    import io

    image = Image.open(io.BytesIO(png(64, 64)[:-60]))
    with pytest.raises(MediaDecodeError, match="OSError") as caught:
        make_processor().apply(inputs(mm_data={"image": [image]}))
    assert caught.value.item_index == 0


def test_media_that_is_not_what_its_header_says_never_shifts_a_placeholder(make_processor: MakeProcessor) -> None:
    with pytest.raises(MediaDecodeError, match="decodes to 16x8 pixels, and its header says 24x8"):
        make_processor().apply(inputs("<video>", mm_data={"video": [video_ref(2, width=24)]}))


def test_a_mistake_of_the_family_is_a_500_for_that_request_alone(make_processor: MakeProcessor, png: MakePng) -> None:
    processor = make_processor()
    with pytest.raises(InvariantError) as caught:
        processor.apply(inputs(mm_data={"image": png()}, mm_processor_kwargs={"bright": "fail"}))
    assert (caught.value.status, caught.value.stage, caught.value.item_index) == (500, "materialize", 0)
    assert processor.apply(inputs(mm_data={"image": png()})).mm_kwargs["image"][0] is not None


def test_memory_that_runs_out_is_503(make_processor: MakeProcessor) -> None:
    def load() -> VideoFrames:
        raise MemoryError

    with pytest.raises(OverloadedError):
        make_processor().apply(inputs("<video>", mm_data={"video": [video_ref(1, load=load)]}))


def test_a_video_with_fewer_frames_than_its_header_promised_is_planned_again(make_processor: MakeProcessor) -> None:
    checked: list[int] = []
    processor = make_processor()
    request = inputs("a<video>", mm_data={"video": [video_ref(3, claims=5)]})

    def check(plans: Mapping[str, Sequence[ItemPlan]], num_prompt_tokens: int) -> None:
        checked.append(plans["video"][0].num_tokens)

    with processor.apply_phase1(request, check=check) as state:
        assert not state.plans["video"][0].is_exact
        state.wait_decodes()
        prompt = processor.apply_phase2(state, check=check)
    assert checked == [15, 9]
    assert prompt.mm_plans["video"][0].is_exact
    assert prompt.mm_placeholders["video"] == [PlaceholderRange(1, 9, ((0, 2), (3, 5), (6, 8)))]
    assert len(prompt.prompt_token_ids) == 10


def embeds(num_embeds: int) -> np.ndarray[Any, Any]:
    return np.ones((num_embeds, 4), np.float32)


def test_embeddings_pass_through_without_any_processing(make_processor: MakeProcessor, tokenizer: Tokenizer, work: Any) -> None:
    prompt = make_processor().apply(inputs("a<image><image>", mm_data={"image": [embeds(2), embeds(3)]}))
    assert prompt.mm_placeholders["image"] == [PlaceholderRange(1, 2), PlaceholderRange(3, 3)]
    data = prompt.mm_kwargs["image"][1]
    assert data is not None
    np.testing.assert_array_equal(data["embeds"], embeds(3))
    assert prompt.mm_hashes["image"][0] != prompt.mm_hashes["image"][1]
    assert work.num_materialised == 0


def test_prompt_embeddings_stand_for_a_prompt(make_processor: MakeProcessor) -> None:
    prompt = make_processor().apply(ProcessorInputs(request_id="r", prompt_embeds=embeds(5)))
    assert len(prompt.prompt_token_ids) == 5
    assert prompt.prompt_embeds is not None


@pytest.mark.parametrize("fields", [{"prompt": "text"}, {"mm_data": {"image": [embeds(2)]}}])
def test_prompt_embeddings_come_alone(make_processor: MakeProcessor, fields: dict[str, Any]) -> None:
    with pytest.raises(InvalidRequestError, match="without a prompt and without media"):
        make_processor().apply(ProcessorInputs(**{"request_id": "r", "prompt_embeds": embeds(5), **fields}))
    with pytest.raises(InvalidRequestError, match=r"must be \(num_embeds, 4\)"):
        make_processor().apply(ProcessorInputs(request_id="r", prompt_embeds=np.ones((3, 5), np.float32)))


def test_names_depend_on_salt_and_on_the_options_of_the_own_modality_alone(make_processor: MakeProcessor, png: MakePng) -> None:
    processor = make_processor()

    def name(**fields: Any) -> bytes:
        return processor.plan_prompt(inputs(mm_data={"image": png()}, **fields)).mm_hashes["image"][0]

    base = name()
    assert len(base) == 32
    assert name(mm_processor_kwargs={"video": {"rows": 4}}) == base
    assert name(media_io_kwargs={"video": {"num_frames": 4}}) == base
    different = [
        name(cache_salt="a"),
        name(cache_salt=""),
        name(mm_processor_kwargs={"bright": 1}),
        name(mm_processor_kwargs={"rows": 1}),
        name(media_io_kwargs={"image": {"rgba_background_color": [0, 0, 0]}}),
    ]
    assert len({base, *different}) == 1 + len(different)
    both = {"bright": 1, "rows": 1}
    assert name(mm_processor_kwargs=both) == name(mm_processor_kwargs=dict(reversed(both.items())))
    assert make_processor(version="2").plan_prompt(inputs(mm_data={"image": png()})).mm_hashes["image"][0] != base


def test_a_uuid_alone_is_409_without_a_cache(make_processor: MakeProcessor) -> None:
    with pytest.raises(MediaNotCachedError) as caught:
        make_processor().apply(inputs(mm_data={"image": [None]}, mm_uuids={"image": ["a"]}))
    assert (caught.value.status, caught.value.code, caught.value.item_index) == (409, "media_not_cached", 0)


def test_planning_a_prompt_decodes_nothing(make_processor: MakeProcessor, png: MakePng, work: Any) -> None:
    processor = make_processor()
    request = inputs("<image>", mm_data={"image": [png()]})
    planned, processed = processor.plan_prompt(request), processor.apply(request)
    assert planned.prompt_token_ids == processed.prompt_token_ids
    assert planned.mm_hashes == processed.mm_hashes
    assert planned.mm_placeholders == processed.mm_placeholders
    assert work.num_decodes == 1


@pytest.mark.parametrize("mode", ["L", "RGBA"])
def test_an_image_that_is_decoded_to_another_mode_is_still_processed_as_rgb(make_processor: MakeProcessor, png: MakePng, mode: str) -> None:
    prompt = make_processor().apply(inputs(mm_data={"image": png()}, media_io_kwargs={"image": {"image_mode": mode}}))
    item = prompt.mm_kwargs["image"][0]
    assert item is not None
    assert item["pixel_values"].shape == (8, 16, 3)
