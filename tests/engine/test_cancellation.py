"""Whoever goes away, at any moment, leaves nothing behind and disturbs nobody."""

from __future__ import annotations

import asyncio
import contextlib
import io
import random
import threading
from collections.abc import Awaitable, Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any
from unittest.mock import patch

import pytest
from PIL import Image

from inset import LLM, SamplingParams
from inset.engine.build import build_engine
from inset.engine.core_client import InProcessClient
from inset.engine.messages import AbortRequests, AddRequests, CacheMessage
from inset.engine.prompts import TextPrompt
from inset.errors import EngineDeadError, OverloadedError
from inset.outputs import RequestOutput

GREEDY = SamplingParams(temperature=0, max_tokens=4, ignore_eos=True)
LONG = SamplingParams(temperature=0, max_tokens=2000, ignore_eos=True)
CACHE_TYPES = ["lru", "shm", "processor_only"]
NUM_PICTURES = 5
WAIT_SECONDS = 30.0
Picture = Callable[..., Image.Image]


@pytest.fixture(scope="module")
def encoded(picture: Picture) -> list[bytes]:
    """Pictures large enough that a decode takes a while."""
    pictures = []
    for number in range(NUM_PICTURES):
        buffer = io.BytesIO()
        picture(number, size=(500, 400)).save(buffer, "PNG")
        pictures.append(buffer.getvalue())
    return pictures


def prompt(*pictures: bytes) -> TextPrompt:
    return TextPrompt(prompt=f"USER: {'<image>' * len(pictures)} what? ASSISTANT:", multi_modal_data={"image": list(pictures)})


async def answer(llm: LLM, *pictures: bytes, params: SamplingParams = GREEDY, request_id: str | None = None) -> RequestOutput:
    async for output in llm.engine.generate(prompt(*pictures), params, request_id=request_id):
        last = output
    return last


async def until(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(WAIT_SECONDS):
        while not condition():  # noqa: ASYNC110 - the engine offers no event for this
            await asyncio.sleep(0.005)


def busy(llm: LLM) -> dict[str, int]:
    """What an engine still has to do or holds for requests."""
    engine = llm.engine
    counts = {
        "preparing": engine.num_preparing,
        "unfinished": engine.num_unfinished,
        "running": engine.stats.num_running,
        "waiting": engine.stats.num_waiting,
        "leases": leases(llm),
        "decoded bytes": engine.core.num_decoded_bytes,
    }
    return {name: count for name, count in counts.items() if count}


async def until_idle(llm: LLM) -> None:
    with contextlib.suppress(TimeoutError):
        await until(lambda: not busy(llm))
    assert busy(llm) == {}


def run(llm: LLM, work: Awaitable[Any]) -> Any:
    async def limited() -> Any:
        return await asyncio.wait_for(work, 2 * WAIT_SECONDS)

    return llm._call(limited())


def leases(llm: LLM) -> int:
    """What requests still hold in both halves of the processor cache."""
    cache, client = llm.engine.core.cache, llm.engine.client
    assert cache is not None
    assert isinstance(client, InProcessClient)
    assert client.core._cache is not None
    return cache.stats.num_leases + client.core._cache.stats.num_leases


@pytest.mark.parametrize("cache_type", CACHE_TYPES)
def test_requests_cancelled_at_any_moment_leave_no_lease_and_no_budget_behind(make_llm: Any, encoded: list[bytes], cache_type: str) -> None:
    """Two pictures fit into the cache; the engine half forgets all of them now and then, so that requests are sent again too."""
    llm = make_llm(mm_processor_cache_type=cache_type, mm_processor_cache_gb=2.5 * 56 * 56 * 3 / 2**30)
    random_ = random.Random(1)

    async def scenario() -> None:
        expected = [(await answer(llm, data)).outputs[0].token_ids for data in encoded]
        for _ in range(12):
            chosen = [random_.choices(range(NUM_PICTURES), k=random_.randint(1, 3)) for _ in range(8)]
            tasks = [asyncio.ensure_future(answer(llm, *(encoded[number] for number in numbers))) for numbers in chosen]
            for task in tasks:
                await asyncio.sleep(random_.random() * 0.008)
                if random_.random() < 0.7:
                    task.cancel()
            results = await asyncio.gather(*tasks, return_exceptions=True)
            for numbers, result in zip(chosen, results, strict=True):
                if not isinstance(result, asyncio.CancelledError):
                    assert not isinstance(result, BaseException), result
                    assert len(numbers) > 1 or result.outputs[0].token_ids == expected[numbers[0]]
            await until_idle(llm)
            llm.engine.client.core._cache.reset()  # idle: nobody else touches it
        assert [(await answer(llm, data)).outputs[0].token_ids for data in encoded] == expected

    run(llm, scenario())


@pytest.mark.parametrize("cache_type", CACHE_TYPES)
def test_requests_aborted_while_queued_hold_nothing_any_more(make_llm: Any, encoded: list[bytes], cache_type: str) -> None:
    llm = make_llm(mm_processor_cache_type=cache_type, max_num_seqs=1)

    async def scenario() -> None:
        running = asyncio.ensure_future(answer(llm, encoded[0], params=LONG))
        await until(lambda: llm.engine.stats.num_running == 1)
        queued = [asyncio.ensure_future(answer(llm, data)) for data in encoded[1:]]
        await until(lambda: llm.engine.stats.num_waiting == len(queued))
        assert leases(llm) > 0
        for task in (*queued, running):
            task.cancel()
        await asyncio.gather(running, *queued, return_exceptions=True)
        await until_idle(llm)
        assert (await answer(llm, encoded[1])).finished

    run(llm, scenario())


@pytest.mark.parametrize("cache_type", CACHE_TYPES)
def test_preempted_requests_keep_their_items_until_they_end(
    make_llm: Any, encoded: list[bytes], cache_type: str, block_bytes: Callable[[str], int]
) -> None:
    """The answers to one prompt begin together, and have no room to end together."""
    long = SamplingParams(temperature=0, max_tokens=40, ignore_eos=True, n=5)
    options = {"mm_processor_cache_type": cache_type, "mm_processor_cache_gb": 1.5 * 56 * 56 * 3 / 2**30, "encoder_cache_size": 16}

    async def ask_all(llm: LLM) -> list[list[Sequence[int]]]:
        outputs = await asyncio.gather(*(answer(llm, data, params=long) for data in encoded[:3]))
        await until_idle(llm)
        return [[one.token_ids for one in output.outputs] for output in outputs]

    roomy, tight = make_llm(**options), make_llm(kv_cache_bytes=14 * block_bytes("llava"), max_model_len=200, max_num_seqs=8, **options)
    assert run(tight, ask_all(tight)) == run(roomy, ask_all(roomy))
    assert tight.engine.stats.values["num_preemptions"] > 0


@pytest.mark.parametrize("cache_type", CACHE_TYPES)
def test_a_request_that_goes_away_before_it_hears_of_a_miss_leaves_nothing_behind(
    make_llm: Any, encoded: list[bytes], cache_type: str
) -> None:
    """Its second picture is held for it while the first one turns out to be lost, and it is never sent again."""
    llm = make_llm(mm_processor_cache_type=cache_type)

    async def scenario() -> None:
        core, client = llm.engine.core, llm.engine.client
        await answer(llm, encoded[0])
        client.core._cache.reset()  # idle: nobody else touches it
        prepared = await core.prepare(prompt(encoded[0], encoded[1]), GREEDY, request_id="gone")
        for message in core.take_cache_messages():
            client.send(CacheMessage(message))
        client.send(AddRequests("gone", [prepared.request]))
        client.send(AbortRequests([prepared.request.request_id]))
        prepared.close()
        assert (await answer(llm, encoded[2])).finished
        await until(lambda: leases(llm) == 0)

    run(llm, scenario())


def test_a_reader_that_is_slower_than_the_engine_still_gets_the_end(make_llm: Any) -> None:
    """Outputs that piled up are passed over, but never the last one, though the engine has gone on behind a stop text."""
    llm = make_llm()
    whole = llm.generate("hello", SamplingParams(temperature=0, max_tokens=40, ignore_eos=True))[0].outputs[0].text
    params = SamplingParams(temperature=0, max_tokens=40, ignore_eos=True, stop=(whole[8:11],))

    async def scenario() -> None:
        stream = llm.engine.generate(TextPrompt(prompt="hello"), params)
        last = await anext(stream)
        running = next(iter(llm.engine._running._prompts.values()))
        await until(lambda: running.events.qsize() > 15)
        async for output in stream:
            last = output
        assert last.finished
        assert last.outputs[0].text == whole[: whole.index(whole[8:11])]

    run(llm, scenario())


def test_a_stream_that_is_closed_has_been_aborted_by_then(make_llm: Any) -> None:
    """The request is not left to the garbage collector."""
    llm = make_llm()

    async def scenario() -> None:
        stream = llm.engine.generate(TextPrompt(prompt="hello"), LONG)
        await anext(stream)
        await stream.aclose()
        assert llm.engine.num_unfinished == 0

    run(llm, scenario())


def test_an_engine_that_was_never_started_frees_its_caches_when_it_is_closed(checkpoints: dict[str, Path]) -> None:
    engine = build_engine(model=str(checkpoints["llava"]), engine_threads=1, mm_processor_cache_type="shm")
    assert isinstance(engine.client, InProcessClient)
    cache = engine.client.core._cache
    assert cache is not None
    with patch.object(cache, "close", wraps=cache.close) as close:
        asyncio.run(engine.close())
        asyncio.run(engine.close())
    assert close.call_count == 1


def test_equal_names_of_requests_disturb_nobody(make_llm: Any, encoded: list[bytes]) -> None:
    llm = make_llm(mm_processor_cache_type="shm")

    async def scenario() -> None:
        alone = [(await answer(llm, data)).outputs[0].token_ids for data in encoded]
        outputs = await asyncio.gather(*(answer(llm, data, request_id="same") for data in encoded))
        assert [output.outputs[0].token_ids for output in outputs] == alone
        assert {output.request_id for output in outputs} == {"same"}

    run(llm, scenario())


@pytest.mark.parametrize("when", ["at once", "while it answers"])
def test_closing_ends_the_calls_of_other_threads_with_an_error(make_llm: Any, encoded: list[bytes], when: str) -> None:
    llm = make_llm()
    with ThreadPoolExecutor(4) as threads:
        begun = threading.Barrier(4)

        def ask(number: int) -> Any:
            begun.wait(WAIT_SECONDS)
            return llm.generate([prompt(data) for data in encoded], LONG, use_tqdm=False)

        calls = [threads.submit(ask, number) for number in range(3)]
        begun.wait(WAIT_SECONDS)
        if when == "while it answers":
            run(llm, until(lambda: llm.engine.stats.num_running > 3))
        threads.submit(llm.close).result(WAIT_SECONDS)
        for call in calls:
            with pytest.raises((EngineDeadError, OverloadedError), match="clos"):
                call.result(WAIT_SECONDS)


def test_requests_that_are_reset_under_get_their_own_answers(make_llm: Any, encoded: list[bytes]) -> None:
    llm = make_llm()

    async def scenario() -> None:
        expected = [(await answer(llm, data)).outputs[0].token_ids for data in encoded]
        for turn in range(6):
            tasks = [asyncio.ensure_future(answer(llm, data)) for data in (*encoded, *encoded)]
            await asyncio.sleep(0.002 * turn)
            for _ in range(3):
                await llm.engine.reset("mm_cache")
                await llm.engine.reset("encoder_cache")
                await llm.engine.reset("prefix_cache")
                await asyncio.sleep(0.002)
            outputs = await asyncio.gather(*tasks)
            assert [output.outputs[0].token_ids for output in outputs] == expected * 2
        await until_idle(llm)

    run(llm, scenario())
