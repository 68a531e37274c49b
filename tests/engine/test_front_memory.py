"""What a front end keeps of a request whose answer is under way: nothing that the engine core has."""

from __future__ import annotations

import asyncio
import gc
import weakref
from collections.abc import AsyncGenerator, Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from inset import SamplingParams
from inset.engine.async_llm import AsyncLLM
from inset.engine.content_parts import ContentPolicy
from inset.engine.core import Core
from inset.engine.core_client import CoreClient, EngineListener
from inset.engine.messages import AddRequests, CacheMissed, EngineCommand, EngineEvent, EngineStats, StepDone
from inset.engine.prompts import ChatPrompt, PromptInput, TextPrompt
from inset.outputs import EngineOutput, RequestOutput

HIDDEN_SIZE = 64
NUM_EMBEDS = 16
TRUSTED = ContentPolicy(accept_objects=True, accept_mm_embeds=True, accept_prompt_embeds=True)
Picture = Callable[..., Any]


class FarClient(CoreClient):
    """An engine core in another process: of what is sent it keeps the names, and here, weakly, the tensors."""

    is_alive = True

    def __init__(self) -> None:
        self.tensors: list[weakref.ref[Any]] = []
        self.added: asyncio.Queue[tuple[str, str]] = asyncio.Queue()

    def start(self, listener: EngineListener) -> None:
        self.listener = listener

    def send(self, command: EngineCommand) -> None:
        if isinstance(command, AddRequests):
            (request,) = command.requests
            arrays = [array for feature in request.mm_features for array in (feature.data or {}).values()]
            arrays += [] if request.prompt_embeds is None else [request.prompt_embeds]
            self.tensors = [weakref.ref(array) for array in arrays]
            self.added.put_nowait((command.commit_id, request.request_id))

    def say(self, event: EngineEvent) -> None:
        self.listener.on_event(event)

    def close(self) -> None:
        pass

    @property
    def num_tensors_kept(self) -> int:
        gc.collect()
        return sum(tensor() is not None for tensor in self.tensors)


@pytest.fixture(scope="module")
def core(checkpoints: dict[str, Path]) -> Iterator[Core]:
    with Core.open(checkpoints["llava"], mm_processor_cache_gb=0, enable_mm_embeds=True, enable_prompt_embeds=True) as core:
        yield core


def rows(count: int = NUM_EMBEDS) -> np.ndarray[Any, Any]:
    return np.full((count, HIDDEN_SIZE), 0.1, np.float32)


def chat(part: Any) -> PromptInput:
    return ChatPrompt(messages=[{"role": "user", "content": [part, {"type": "text", "text": "what?"}]}], policy=TRUSTED)


PROMPTS: dict[str, Callable[[Picture], PromptInput]] = {
    "a picture": lambda picture: chat({"type": "image_pil", "image_pil": picture(1)}),
    "embeddings of a picture": lambda _: chat({"type": "image_embeds", "image_embeds": rows()}),
    "embeddings of text": lambda _: chat({"type": "prompt_embeds", "prompt_embeds": rows(3)}),
    "embeddings of a whole prompt": lambda _: TextPrompt(prompt_embeds=rows(3)),
}


async def next_output(outputs: AsyncGenerator[RequestOutput, None]) -> RequestOutput:
    async with asyncio.timeout(30):
        return await anext(outputs)


@pytest.mark.parametrize("name", PROMPTS)
def test_tensors_go_with_the_first_word_of_the_engine_core_and_are_there_for_a_miss_until_then(
    core: Core, picture: Picture, name: str
) -> None:
    client = FarClient()

    async def run() -> None:
        engine = await AsyncLLM(core, client).start()
        outputs = engine.generate(PROMPTS[name](picture), SamplingParams(max_tokens=2, ignore_eos=True))
        first = asyncio.ensure_future(next_output(outputs))
        commit_id, _ = await client.added.get()
        client.say(CacheMissed(commit_id, ()))
        commit_id, request_id = await client.added.get()
        assert 0 < client.num_tensors_kept == len(client.tensors)
        client.say(StepDone([EngineOutput(request_id=request_id, new_token_ids=(5,))], EngineStats()))
        assert not (await first).finished
        assert client.num_tensors_kept == 0
        client.say(StepDone([EngineOutput(request_id=request_id, new_token_ids=(5,), finish_reason="length")], EngineStats(), (commit_id,)))
        last = await next_output(outputs)
        assert last.finished
        assert last.usage.prompt_tokens == len(last.prompt_token_ids)
        await outputs.aclose()

    asyncio.run(run())
