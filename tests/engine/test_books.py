"""Whatever happens to requests, answers stay right and nothing stays held."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable
from typing import Any

import pytest
from PIL import Image

from inset import LLM, SamplingParams
from inset.engine.prompts import TextPrompt

NUM_PICTURES = 8
ROUNDS = 25
SETTLE_SECONDS = 20.0


async def settle(llm: LLM) -> None:
    """Waits until the last request has been let go of, and finds nothing held."""
    cache = llm.engine.core.cache
    assert cache is not None
    async with asyncio.timeout(SETTLE_SECONDS):
        while cache.stats.num_leases or llm.engine.stats.num_running:  # noqa: ASYNC110 - the engine offers no event for this
            await asyncio.sleep(0.01)
    assert llm.engine.num_unfinished == llm.engine.num_preparing == 0
    assert llm.engine.core.num_decoded_bytes == 0


@pytest.mark.parametrize("cache_type", ["lru", "shm", "processor_only"])
def test_cancellations_resets_and_evictions_never_give_a_wrong_answer_or_keep_anything(
    cache_type: str, make_llm: Any, picture: Callable[..., Image.Image], block_bytes: Callable[[str], int]
) -> None:
    """The cache holds four of eight pictures, the KV cache a few requests, the encoder cache four items."""
    rng = random.Random(0)
    llm: LLM = make_llm(
        mm_processor_cache_type=cache_type,
        mm_processor_cache_gb=0.00004,
        max_num_batched_tokens=64,
        max_model_len=256,
        kv_cache_bytes=24 * block_bytes("llava"),
    )
    pictures = [picture(number) for number in range(NUM_PICTURES)]
    params = SamplingParams(temperature=0, max_tokens=6, ignore_eos=True)
    known: dict[tuple[int, ...], list[int]] = {}

    async def ask(numbers: tuple[int, ...]) -> list[int]:
        markers = " ".join("<image>" for _ in numbers)
        prompt = TextPrompt(prompt=f"USER: {markers} ASSISTANT:", multi_modal_data={"image": [pictures[n] for n in numbers]})
        async for output in llm.engine.generate(prompt, params):
            last = output.outputs[0].token_ids
        return last

    async def round_of_requests() -> None:
        chosen = [tuple(rng.randrange(NUM_PICTURES) for _ in range(rng.randint(1, 3))) for _ in range(rng.randint(1, 12))]
        tasks = [asyncio.create_task(ask(numbers)) for numbers in chosen]
        for task in tasks:
            if rng.random() < 0.3:
                await asyncio.sleep(rng.random() * 0.01)
                task.cancel()
        if rng.random() < 0.2:
            await llm.engine.reset("mm_cache")
        if rng.random() < 0.2:
            await llm.engine.reset(rng.choice(["encoder_cache", "prefix_cache"]))
        for numbers, answer in zip(chosen, await asyncio.gather(*tasks, return_exceptions=True), strict=True):
            if not isinstance(answer, asyncio.CancelledError):
                assert not isinstance(answer, BaseException), answer
                assert known.setdefault(numbers, answer) == answer

    async def run() -> None:
        for _ in range(ROUNDS):
            await round_of_requests()
        await settle(llm)

    llm._call(run())
    assert len(known) > 20
