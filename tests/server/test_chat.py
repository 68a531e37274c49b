"""Chat completions, as the official client sees them."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import httpx
import openai
import pytest

MODEL = "tiny"
GREEDY: dict[str, Any] = {"model": MODEL, "temperature": 0, "max_tokens": 8, "extra_body": {"ignore_eos": True}}
Picture = Callable[..., str]


def ask(*content: Any) -> list[Any]:
    return [{"role": "user", "content": list(content)}]


def text(value: str) -> dict[str, Any]:
    return {"type": "text", "text": value}


def image(url: str, **more: Any) -> dict[str, Any]:
    return {"type": "image_url", "image_url": {"url": url, **more}}


def test_answer_has_the_form_of_openais(client: openai.OpenAI, picture: Picture) -> None:
    answer = client.chat.completions.create(messages=ask(image(picture(1)), text("what?")), **GREEDY)
    assert answer.object == "chat.completion"
    assert answer.model == MODEL
    [choice] = answer.choices
    assert (choice.index, choice.message.role, choice.finish_reason) == (0, "assistant", "length")
    assert choice.message.content
    assert answer.usage is not None
    assert answer.usage.completion_tokens == 8
    assert answer.usage.total_tokens == answer.usage.prompt_tokens + 8
    assert answer.usage.prompt_tokens_details is not None
    assert answer.usage.prompt_tokens_details.model_dump()["image_tokens"] == 16


def test_stream_gives_the_same_text_piece_by_piece(client: openai.OpenAI, picture: Picture) -> None:
    messages = ask(image(picture(1)), text("what?"))
    whole = client.chat.completions.create(messages=messages, **GREEDY)
    chunks = list(client.chat.completions.create(messages=messages, stream=True, stream_options={"include_usage": True}, **GREEDY))
    assert chunks[0].choices[0].delta.role == "assistant"
    assert "".join(chunk.choices[0].delta.content or "" for chunk in chunks[:-1]) == whole.choices[0].message.content
    assert [chunk.choices[0].finish_reason for chunk in chunks[:-1]][-1] == "length"
    assert chunks[-1].choices == []
    assert chunks[-1].usage is not None
    assert chunks[-1].usage.completion_tokens == 8
    assert len({chunk.id for chunk in chunks}) == 1


def test_async_client_works_side_by_side(server: Any, picture: Picture) -> None:
    async def ask_all() -> list[str | None]:
        async with openai.AsyncOpenAI(base_url=f"{server.url}/v1", api_key="none", max_retries=0) as client:
            calls = [client.chat.completions.create(messages=ask(image(picture(n % 3)), text("?")), **GREEDY) for n in range(9)]
            return [answer.choices[0].message.content for answer in await asyncio.gather(*calls)]

    answers = asyncio.run(ask_all())
    assert answers[:3] == answers[3:6] == answers[6:]
    assert len(set(answers)) == 3


def test_async_client_streams_side_by_side(server: Any, picture: Picture) -> None:
    async def read(client: openai.AsyncOpenAI, number: int) -> str:
        stream = await client.chat.completions.create(messages=ask(image(picture(number % 3)), text("?")), stream=True, **GREEDY)
        return "".join([chunk.choices[0].delta.content or "" async for chunk in stream])

    async def read_all() -> list[str]:
        async with openai.AsyncOpenAI(base_url=f"{server.url}/v1", api_key="none", max_retries=0) as client:
            return await asyncio.gather(*(read(client, number) for number in range(6)))

    answers = asyncio.run(read_all())
    assert answers[:3] == answers[3:]
    assert len(set(answers)) == 3


def test_several_answers_are_repeatable_by_seed(client: openai.OpenAI) -> None:
    options: dict[str, Any] = {**GREEDY, "temperature": 1.0, "n": 3, "seed": 7}
    first = client.chat.completions.create(messages=ask(text("hi")), **options)
    second = client.chat.completions.create(messages=ask(text("hi")), **options)
    texts = [choice.message.content for choice in first.choices]
    assert [choice.index for choice in first.choices] == [0, 1, 2]
    assert texts == [choice.message.content for choice in second.choices]
    assert len(set(texts)) == 3
    assert first.usage is not None
    assert first.usage.completion_tokens == 24


def test_several_answers_stream_side_by_side(client: openai.OpenAI) -> None:
    options: dict[str, Any] = {**GREEDY, "temperature": 1.0, "n": 2, "seed": 7}
    whole = client.chat.completions.create(messages=ask(text("hi")), **options)
    texts = {0: "", 1: ""}
    for chunk in client.chat.completions.create(messages=ask(text("hi")), stream=True, **options):
        for choice in chunk.choices:
            texts[choice.index] += choice.delta.content or ""
    assert [texts[0], texts[1]] == [choice.message.content for choice in whole.choices]


@pytest.mark.parametrize("stream", [False, True])
def test_logprobs_come_one_per_token(client: openai.OpenAI, stream: bool) -> None:
    options: dict[str, Any] = {**GREEDY, "logprobs": True, "top_logprobs": 2}
    if stream:
        choices = [chunk.choices[0] for chunk in client.chat.completions.create(messages=ask(text("hi")), stream=True, **options)]
    else:
        choices = list(client.chat.completions.create(messages=ask(text("hi")), **options).choices)
    entries = [entry for choice in choices if choice.logprobs is not None for entry in choice.logprobs.content or ()]
    assert len(entries) == 8
    assert all(len(entry.top_logprobs) == 2 and entry.top_logprobs[0].logprob == entry.logprob <= 0 for entry in entries)


def test_stop_text_ends_the_answer(client: openai.OpenAI) -> None:
    options: dict[str, Any] = {**GREEDY, "max_tokens": 20}
    whole = client.chat.completions.create(messages=ask(text("hi")), **options).choices[0].message.content
    assert whole is not None
    stop = whole[6:8]
    [choice] = client.chat.completions.create(messages=ask(text("hi")), stop=stop, **options).choices
    assert choice.finish_reason == "stop"
    assert choice.message.content == whole[: whole.index(stop)]


@pytest.mark.parametrize("stream", [False, True])
def test_trace_is_sent_to_those_who_ask(server: Any, picture: Picture, stream: bool) -> None:
    body = {
        "messages": ask(image(picture(11 + stream)), text("?")),
        "max_tokens": 2,
        "temperature": 0,
        "ignore_eos": True,
        "stream": stream,
    }
    response = httpx.post(f"{server.url}/v1/chat/completions", json=body, headers={"X-Inset-Trace": "1"}, timeout=60)
    assert '"inset_trace"' in response.text
    assert all(f'"{stage}"' in response.text for stage in ("fetch", "plan", "decode", "materialize", "queue", "encode", "prefill"))
    assert response.headers["x-request-id"]
    assert '"inset_trace"' not in httpx.post(f"{server.url}/v1/chat/completions", json=body, timeout=60).text
