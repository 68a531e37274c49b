"""How many prompts may wait for an engine core, whatever it says and however long it is silent."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from inset import LLM, SamplingParams
from inset.engine.async_llm import AsyncLLM
from inset.engine.core import Core
from inset.engine.core_client import CoreClient, EngineListener
from inset.engine.messages import AddRequests, EngineCommand, EngineStats, StepDone
from inset.engine.prompts import TextPrompt
from inset.errors import OverloadedError
from inset.outputs import EngineOutput

SAMPLED = SamplingParams(n=4, max_tokens=1, temperature=1, ignore_eos=True)
WAIT_SECONDS = 30.0


class SteppingClient(CoreClient):
    """An engine core in the middle of a step, which ends when the test says so."""

    is_alive = True

    def __init__(self) -> None:
        self.added: list[AddRequests] = []

    def start(self, listener: EngineListener) -> None:
        self.listener = listener

    def send(self, command: EngineCommand) -> None:
        if isinstance(command, AddRequests):
            self.added.append(command)

    def end_step(self, *, ended: AddRequests, num_waiting: int = 0) -> None:
        outputs = [EngineOutput(request_id=each.request_id, new_token_ids=(5,), finish_reason="length") for each in ended.requests]
        self.listener.on_event(StepDone(outputs, EngineStats(num_waiting=num_waiting), (ended.commit_id,)))

    def close(self) -> None:
        pass


@pytest.fixture(scope="module")
def core(checkpoints: dict[str, Path]) -> Iterator[Core]:
    with Core.open(checkpoints["llava"]) as core:
        yield core


async def answer(engine: AsyncLLM, **params: Any) -> None:
    async with asyncio.timeout(WAIT_SECONDS):
        async for _ in engine.generate(TextPrompt(prompt="what?"), SamplingParams(max_tokens=1, **params)):
            pass


async def until_added(client: SteppingClient, number: int) -> None:
    async with asyncio.timeout(WAIT_SECONDS):
        while len(client.added) < number:  # noqa: ASYNC110 - sending is no event
            await asyncio.sleep(0.005)


def test_what_was_sent_counts_while_the_engine_core_is_silent_once_however_many_its_answers(core: Core) -> None:
    client = SteppingClient()

    async def run() -> None:
        engine = await AsyncLLM(core, client, max_waiting_requests=3).start()
        waiting = []
        for number in range(3):  # each of them is on its way before the next one comes
            waiting.append(asyncio.create_task(answer(engine, n=2)))
            await until_added(client, number + 1)
        with pytest.raises(OverloadedError, match="0 requests are being prepared and 3 wait for their first token; at most 3 may"):
            await answer(engine)
        client.end_step(ended=client.added[0])
        await waiting[0]
        waiting.append(asyncio.create_task(answer(engine)))
        await until_added(client, 4)
        waiting[1].cancel()
        await asyncio.wait([waiting[1]])
        waiting.append(asyncio.create_task(answer(engine)))
        await until_added(client, 5)
        for added in client.added[2:]:
            client.end_step(ended=added)
        await asyncio.gather(waiting[0], *waiting[2:])

    asyncio.run(run())


def test_what_others_have_waiting_refuses_nobody(core: Core) -> None:
    """A front end whose last request ended while those of others filled the engine core hears of no step for a while."""
    client = SteppingClient()

    async def run() -> None:
        engine = await AsyncLLM(core, client, max_waiting_requests=2).start()
        for number in range(2):
            asked = asyncio.create_task(answer(engine))
            await until_added(client, number + 1)
            client.end_step(ended=client.added[-1], num_waiting=256)
            await asked
        assert engine.stats.num_waiting == 256

    asyncio.run(run())


def test_offline_more_answers_than_a_server_lets_wait_are_all_given(make_llm: Callable[..., LLM]) -> None:
    llm = make_llm(max_num_seqs=2, max_model_len=64, max_waiting_requests=2)
    outputs = llm.generate(["what"] * 9, SAMPLED, use_tqdm=False)
    assert [len(output.outputs) for output in outputs] == [4] * 9
