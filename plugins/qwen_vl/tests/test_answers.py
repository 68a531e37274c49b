"""Answers of whole engines equal those of transformers' generate, token for token, however a request is cut, batched or cached."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from inset import LLM, SamplingParams
from inset.engine.prompts import TextPrompt

FAMILIES = ["qwen2_vl", "qwen2_5_vl", "qwen3_vl"]
GREEDY = SamplingParams(temperature=0, max_tokens=12, ignore_eos=True)
IMAGE, VIDEO = "<|vision_start|><|image_pad|><|vision_end|>", "<|vision_start|><|video_pad|><|vision_end|>"

# (height, width) is an image, (num_frames, height, width) a video.
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
