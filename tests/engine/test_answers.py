"""Answers equal those of transformers' generate, token for token, however a request is cut, batched or cached."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import pytest
from PIL import Image

from inset import LLM, SamplingParams
from inset.engine.prompts import TextPrompt

MODELS = ["llava", "llava_next"]
GREEDY = SamplingParams(temperature=0, max_tokens=12, ignore_eos=True)
Picture = Callable[..., Image.Image]

LAYOUTS: dict[str, Sequence[Any]] = {
    "text only": ["how are you?"],
    "image first": [0, "what is this?"],
    "image in the middle": ["look", 1, "what is this?"],
    "image last": ["look at", 2],
    "four images": [3, "and", 4, "and", 5, 6, "which one?"],
    "the same image twice": [7, "or", 7],
}


def prompt_of(layout: Sequence[Any], picture: Picture, *, size: tuple[int, int] = (80, 60)) -> TextPrompt:
    text = "USER: " + " ".join("<image>" if isinstance(part, int) else part for part in layout) + " ASSISTANT:"
    images = [picture(part, size=size) for part in layout if isinstance(part, int)]
    return TextPrompt(prompt=text, multi_modal_data={"image": images} if images else {})


def processed(llm: LLM, prompt: TextPrompt) -> Any:
    return llm._call(llm.engine.core.process(prompt))


@pytest.mark.parametrize("model", MODELS)
@pytest.mark.parametrize("layout", LAYOUTS)
def test_answer_equals_generate(model: str, layout: str, make_llm: Any, picture: Picture, reference: Any, assert_same_tokens: Any) -> None:
    llm = make_llm(model)
    prompt = prompt_of(LAYOUTS[layout], picture)
    [output] = llm.generate(prompt, GREEDY)
    assert_same_tokens(output.outputs[0].token_ids, reference(model)(processed(llm, prompt), 12))


OPTIONS: dict[str, dict[str, Any]] = {
    "windows of 16 tokens": {"max_num_batched_tokens": 16},
    "windows of 64 tokens": {"max_num_batched_tokens": 64},
    "windows of 1000 tokens": {"max_num_batched_tokens": 1000},
    "items never cut": {"max_num_batched_tokens": 64, "disable_chunked_mm_input": True},
    "no prefix cache": {"enable_prefix_caching": False},
    "no processor cache": {"mm_processor_cache_gb": 0},
    "processor cache in the front alone": {"mm_processor_cache_type": "processor_only"},
    "no cache at all": {"enable_prefix_caching": False, "mm_processor_cache_gb": 0},
}


@pytest.mark.parametrize("model", MODELS)
@pytest.mark.parametrize("options", OPTIONS)
def test_eight_concurrent_requests_with_different_images_equal_generate(
    model: str, options: str, make_llm: Any, picture: Picture, reference: Any, assert_same_tokens: Any
) -> None:
    llm = make_llm(model, **OPTIONS[options])
    layouts = [[10 + index, f"question {index}?"] if index % 3 else [f"q{index}", 20 + index, "and", 10 + index] for index in range(8)]
    prompts = [prompt_of(layout, picture) for layout in layouts]
    for _ in range(2):  # the second time with warm caches
        outputs = llm.generate(prompts, GREEDY, use_tqdm=False)
        for prompt, output in zip(prompts, outputs, strict=True):
            assert_same_tokens(output.outputs[0].token_ids, reference(model)(processed(llm, prompt), 12))


@pytest.mark.parametrize("model", MODELS)
def test_answers_after_preemption_equal_generate(
    model: str, make_llm: Any, picture: Picture, reference: Any, assert_same_tokens: Any, block_bytes: Callable[[str], int]
) -> None:
    long = SamplingParams(temperature=0, max_tokens=40, ignore_eos=True)
    llm = make_llm(model, kv_cache_bytes=20 * block_bytes(model), max_model_len=320, max_num_seqs=8)
    prompts = [prompt_of([30 + index, f"question {index}?"], picture) for index in range(8)]
    outputs = llm.generate(prompts, long, use_tqdm=False)
    assert llm.engine.stats.values["num_preemptions"] > 0
    for prompt, output in zip(prompts, outputs, strict=True):
        assert_same_tokens(output.outputs[0].token_ids, reference(model)(processed(llm, prompt), 40))
