"""Answers of whole engines equal those of transformers' generate, token for token, however a request is cut, batched or cached."""

from __future__ import annotations

import base64
import io
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image

from inset import LLM, SamplingParams
from inset.engine.content_parts import ContentPolicy
from inset.engine.prompts import ChatPrompt, RequestOptions, TextPrompt
from inset.errors import MediaDecodeError
from inset.testing.sample_clips import encode_sound_track, make_tone, make_video

FAMILIES = ["qwen2_vl", "qwen2_5_vl", "qwen3_vl"]
GREEDY = SamplingParams(temperature=0, max_tokens=12, ignore_eos=True)
_OFFLINE = ContentPolicy(accept_objects=True)
IMAGE, VIDEO = "<|vision_start|><|image_pad|><|vision_end|>", "<|vision_start|><|video_pad|><|vision_end|>"

# (height, width) is an image, (num_frames, height, width) a video.
STRANGERS: Sequence[Sequence[Any]] = [
    [(60 + 9 * index, 150 - 8 * index), f"question {index}?"]
    if index % 2
    else [f"q{index}", (3 + index, 60, 84), "or", (90, 60 + index), "?"]
    for index in range(8)
]

LAYOUTS: dict[str, Sequence[Any]] = {
    "text only": ["how are you?"],
    "one image": ["look at ", (80, 120), " what is this?"],
    "images of several sizes": [(30, 190), "and", (97, 71), (200, 300), "which?"],
    "image, video, image": [(80, 120), (8, 60, 90), "then", (61, 47), "?"],
    "two videos": ["first", (6, 56, 84), "second", (11, 90, 70), "?"],
    "odd and single frames": [(5, 64, 64), "and", (1, 84, 84), "?"],
}


def array(part: Sequence[int]) -> Any:
    pixels = np.random.default_rng([*part]).integers(0, 256, (*part, 3), dtype=np.uint8)
    return Image.fromarray(pixels) if len(part) == 2 else (pixels, {"fps": 6.0 + part[0]})


def prompt_of(layout: Sequence[Any]) -> TextPrompt:
    text = "".join(part if isinstance(part, str) else IMAGE if len(part) == 2 else VIDEO for part in layout)
    items = [part for part in layout if not isinstance(part, str)]
    data = {"image": [array(part) for part in items if len(part) == 2], "video": [array(part) for part in items if len(part) == 3]}
    return TextPrompt(prompt=text, multi_modal_data={modality: media for modality, media in data.items() if media})


@pytest.fixture
def make_llm(tiny_checkpoint: Callable[..., Path]) -> Iterator[Callable[..., LLM]]:
    """Makes engines that are closed, and audited, when the test ends."""
    made: list[LLM] = []

    def make(family: str, **options: Any) -> LLM:
        made.append(LLM(tiny_checkpoint(family), engine_threads=1, **options))
        return made[-1]

    yield make
    for llm in made:
        llm.close()


def processed(llm: LLM, prompt: TextPrompt) -> Any:
    return llm._call(llm.engine.core.process(prompt))


@pytest.mark.parametrize("family", FAMILIES)
def test_answers_equal_generate(family: str, make_llm: Any, reference: Any) -> None:
    llm = make_llm(family)
    for name, layout in LAYOUTS.items():
        prompt = prompt_of(layout)
        [output] = llm.generate(prompt, GREEDY)
        expected = reference(family).answer(processed(llm, prompt))
        assert len(expected) >= 2, f"{name}: the reference is undecided from the start; choose another seed"
        assert list(output.outputs[0].token_ids)[: len(expected)] == expected, name


OPTIONS: dict[str, dict[str, Any]] = {
    "windows of 16 tokens": {"max_num_batched_tokens": 16},
    "windows of 64 tokens": {"max_num_batched_tokens": 64},
    "windows of 1000 tokens": {"max_num_batched_tokens": 1000},
    "no prefix cache": {"enable_prefix_caching": False},
    "no processor cache": {"mm_processor_cache_gb": 0},
    "no cache at all": {"enable_prefix_caching": False, "mm_processor_cache_gb": 0},
}


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("options", OPTIONS)
def test_eight_concurrent_mixed_requests_equal_generate(family: str, options: str, make_llm: Any, reference: Any) -> None:
    llm = make_llm(family, **OPTIONS[options])
    prompts = [prompt_of(layout) for layout in STRANGERS]
    for _ in range(2):  # the second time with warm caches
        outputs = llm.generate(prompts, GREEDY, use_tqdm=False)
        for prompt, output in zip(prompts, outputs, strict=True):
            expected = reference(family).answer(processed(llm, prompt))
            assert list(output.outputs[0].token_ids)[: len(expected)] == expected


@pytest.mark.parametrize("family", FAMILIES)
def test_another_picture_of_the_same_size_gives_another_answer(family: str, make_llm: Any) -> None:
    llm = make_llm(family)
    noise = np.random.default_rng(0).integers(0, 256, (4, 84, 84, 3), dtype=np.uint8)
    prompts = [TextPrompt(prompt=f"look {IMAGE} ?", multi_modal_data={"image": [pixels]}) for pixels in noise]
    answers = {tuple(output.outputs[0].token_ids) for output in llm.generate(prompts, GREEDY, use_tqdm=False)}
    assert len(answers) == 4


CLIPS: dict[str, dict[str, Any]] = {
    "steady": {"num_frames": 90, "fps": 30},
    "one frame": {"num_frames": 1},
    "odd number of frames": {"num_frames": 35, "fps": 10},
    "variable rate": {"num_frames": 12, "timestamps_seconds": [0, 0.1, 0.2, 0.25, 1, 1.5, 3, 3.1, 3.2, 5, 6, 8]},
    "matroska without a duration": {"num_frames": 40, "container": "matroska", "container_options": {"live": "1"}},
    "turned": {"num_frames": 60, "rotation": 90, "width": 96, "height": 64},
}


@pytest.mark.parametrize("family", FAMILIES)
def test_video_files_are_planned_from_their_headers_and_answered_like_generate(family: str, make_llm: Any, reference: Any) -> None:
    llm = make_llm(family)
    for name, options in CLIPS.items():
        message = {
            "role": "user",
            "content": [{"type": "text", "text": "What"}, {"type": "video", "video": make_video(**options)}, {"type": "text", "text": "?"}],
        }
        planned = llm.render([message])
        [output] = llm.chat([message], GREEDY)
        prompt = llm._call(llm.engine.core.process(ChatPrompt(messages=[message], policy=_OFFLINE)))
        expected = reference(family).answer(prompt)
        assert list(output.outputs[0].token_ids)[: len(expected)] == expected, name
        assert list(planned.prompt_token_ids) == list(prompt.prompt_token_ids) == list(output.prompt_token_ids), name
        assert planned.mm_placeholders == prompt.mm_placeholders, name


@pytest.mark.parametrize("family", FAMILIES)
def test_finished_embeddings_give_the_answer_of_their_picture(family: str, make_llm: Any, load_qwen: Any) -> None:
    llm = make_llm(family)
    [by_picture] = llm.generate(prompt := prompt_of([(80, 120), "?", (5, 64, 64), "!"]), GREEDY)
    made = processed(llm, prompt)
    adapter = load_qwen(family)
    data: dict[str, Any] = {}
    for modality in ("image", "video"):
        [item], [plan] = made.mm_kwargs[modality], made.mm_plans[modality]
        with torch.inference_mode():
            [rows] = adapter.encode(modality, [{name: torch.tensor(value) for name, value in item.items()}])
        data[modality] = [{f"{modality}_embeds": rows, f"{modality}_grid_thw": list(plan.grid)}]
    if family == "qwen2_5_vl":
        data["video"][0]["second_per_grid_ts"] = [made.mm_plans["video"][0].details["second_per_grid_ts"]]
    if family == "qwen3_vl":
        data["video"][0]["timestamps"] = [0.5 / 11, 2.5 / 11, 4 / 11]
    [by_embeds] = llm.generate(TextPrompt(prompt=prompt.prompt, multi_modal_data=data), GREEDY)
    assert by_embeds.outputs[0].token_ids == by_picture.outputs[0].token_ids


BROKEN: dict[str, bytes] = {
    "sound alone": encode_sound_track(make_tone(8000), container="mp4", codec="aac"),
    "cut before its index": make_video(30)[:2000],
    "no media": b"no media at all, but long enough to look for a header in it" * 9,
}


@pytest.mark.parametrize("family", ["qwen2_5_vl", "qwen3_vl"])
def test_a_video_that_cannot_be_decoded_is_refused_by_its_place_and_the_next_request_is_answered(family: str, make_llm: Any) -> None:
    llm = make_llm(family)
    for name, data in BROKEN.items():
        good = make_video(8)
        prompt = TextPrompt(prompt=f"{VIDEO} and {VIDEO}?", multi_modal_data={"video": [good, data]})
        with pytest.raises(MediaDecodeError) as caught:
            llm.generate(prompt, GREEDY)
        assert (caught.value.status, caught.value.modality, caught.value.item_index) == (422, "video", 1), name
    cut = make_video(30, container="matroska")
    cut = cut[: len(cut) * 2 // 3]
    [output] = llm.generate(TextPrompt(prompt=f"{VIDEO}?", multi_modal_data={"video": [cut]}), GREEDY)
    assert len(output.outputs[0].token_ids) == 12


def test_options_of_a_request_change_which_frames_are_seen(make_llm: Any) -> None:
    llm = make_llm("qwen2_5_vl")
    clip = make_video(90)

    def grid(**options: Any) -> Any:
        prompt = TextPrompt(
            prompt=f"{VIDEO}?", multi_modal_data={"video": [clip]}, options=RequestOptions(media_io_kwargs={"video": options})
        )
        [plan] = processed(llm, prompt).mm_plans["video"]
        return plan.grid[0], plan.details["second_per_grid_ts"]

    assert grid() == (3, pytest.approx(1.0))
    assert grid(num_frames=10) == (5, pytest.approx(0.6))
    assert grid(fps=8) == (12, pytest.approx(0.25))
    assert grid(fps=8, max_frames=4) == (2, pytest.approx(1.5))


def test_a_list_of_frames_is_a_video_of_one_frame_a_second(make_llm: Any) -> None:
    llm = make_llm("qwen3_vl")
    frames = [Image.fromarray(np.random.default_rng(n).integers(0, 256, (64, 64, 3), dtype=np.uint8)) for n in range(3)]
    encoded = []
    for frame in frames:
        buffer = io.BytesIO()
        frame.save(buffer, "JPEG")
        encoded.append(base64.b64encode(buffer.getvalue()).decode())
    url = "data:video/jpeg;base64," + ",".join(encoded)
    message = {"role": "user", "content": [{"type": "video_url", "video_url": {"url": url}}, {"type": "text", "text": "?"}]}
    planned = llm.render([message])
    assert "<0.5 seconds>" in llm.engine.core.processor.info.tokenizer.decode(planned.prompt_token_ids, skip_special_tokens=False)
    assert planned.mm_plans["video"][0].grid[0] == 2
    [output] = llm.chat([message], GREEDY)
    assert list(output.prompt_token_ids) == list(planned.prompt_token_ids)


def test_one_video_with_its_metadata_may_stand_without_a_list(make_llm: Any) -> None:
    llm = make_llm("qwen3_vl")
    pair = (np.zeros((4, 64, 64, 3), np.uint8), {"fps": 2.0})
    prompts = [{"prompt": f"{VIDEO}?", "multi_modal_data": {"video": video}} for video in (pair, [pair])]
    alone, listed = llm.generate(prompts, GREEDY, use_tqdm=False)
    assert list(alone.prompt_token_ids) == list(listed.prompt_token_ids)
    assert alone.outputs[0].token_ids == listed.outputs[0].token_ids
