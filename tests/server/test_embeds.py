"""Finished embeddings, options and detail in requests, for clients that the operator trusts."""

from __future__ import annotations

import base64
import io
from collections.abc import Callable
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import openai
import pytest
from safetensors.torch import load_file

Picture = Callable[..., str]
GREEDY: dict[str, Any] = {"model": "tiny", "temperature": 0, "max_tokens": 6, "extra_body": {"ignore_eos": True}}
HIDDEN_SIZE = 64


def ask(*content: Any) -> list[Any]:
    return [{"role": "user", "content": list(content)}]


def npy(array: Any, **options: Any) -> str:
    buffer = io.BytesIO()
    np.save(buffer, array, **options)
    return base64.b64encode(buffer.getvalue()).decode()


def rows(seed: int, count: int = 16, size: int = HIDDEN_SIZE) -> Any:
    return np.random.default_rng(seed).normal(size=(count, size)).astype(np.float32)


@pytest.fixture(scope="module")
def trusting(make_server: Any) -> Any:
    return make_server(enable_mm_embeds=True, enable_prompt_embeds=True, trust_request_mm_kwargs=True)


def answer(server: Any, *content: Any, **fields: Any) -> str | None:
    with server.client() as client:
        text: str | None = client.chat.completions.create(messages=ask(*content), **{**GREEDY, **fields}).choices[0].message.content
        return text


def test_embeddings_are_taken_in_every_form_that_carries_them(trusting: Any) -> None:
    array = rows(1)
    forms = [npy(array), npy(np.asfortranarray(array)), array.tolist(), {"image_embeds": npy(array)}]
    answers = {answer(trusting, {"type": "image_embeds", "image_embeds": form}, "what?") for form in forms}
    assert len(answers) == 1
    assert answer(trusting, {"type": "image_embeds", "image_embeds": npy(rows(2))}, "what?") not in answers


BOMB = base64.b64encode(base64.b64decode(npy(rows(1))).replace(b"(16, 64), }" + b" " * 12, b"(999999999999999, 64), }")[:128]).decode()


@pytest.mark.parametrize(
    "value",
    [
        "no base64!",
        base64.b64encode(b"hello").decode(),
        base64.b64encode(base64.b64decode(npy(rows(1))).replace(b"}", b"(")).decode(),
        npy(np.array([object()], dtype=object), allow_pickle=True),
        npy(np.array(["text"])),
        npy(rows(1))[:-400],
        BOMB,
        npy(rows(1, size=8)),
        npy(rows(1)[0]),
        npy(np.full((16, HIDDEN_SIZE), np.nan, np.float32)),
        npy(np.ones((16, HIDDEN_SIZE), np.int64)),
        [[1.0] * HIDDEN_SIZE, [1.0]],
        [["a"]],
        "",
        5,
    ],
    ids=lambda value: str(value)[:20],
)
def test_what_are_no_embeddings_is_refused_with_its_place(trusting: Any, value: Any) -> None:
    with trusting.client() as client, pytest.raises(openai.BadRequestError) as caught:
        client.chat.completions.create(messages=ask("hi", {"type": "image_embeds", "image_embeds": value}), **GREEDY)
    assert caught.value.param == "messages[0].content[1]"


def test_prompt_embeddings_take_the_place_of_a_whole_prompt(trusting: Any) -> None:
    def part(seed: int) -> dict[str, Any]:
        return {"type": "prompt_embeds", "data": npy(rows(seed, count=5))}

    assert answer(trusting, part(1)) == answer(trusting, part(1)) != answer(trusting, part(2))
    with trusting.client() as client, pytest.raises(openai.BadRequestError, match="a uuid does not stand for them"):
        client.chat.completions.create(messages=ask({"type": "prompt_embeds", "uuid": "a"}), **GREEDY)


def embedded(value: Any) -> dict[str, Any]:
    return {"type": "prompt_embeds", "data": value}


def test_prompt_embeddings_stand_between_texts_and_beside_pictures(trusting: Any, picture: Picture) -> None:
    first, second = npy(rows(1, count=5)), npy(rows(2, count=5))
    parts = ["look at", embedded(first), {"image_url": picture(1)}, "and", embedded(second), "is <image> a tag?"]
    expected = answer(trusting, *parts)
    swapped = ["look at", embedded(second), {"image_url": picture(1)}, "and", embedded(first), "is <image> a tag?"]
    assert answer(trusting, *swapped) != expected
    assert answer(trusting, *parts) == expected
    plan = httpx.post(f"{trusting.url}/v1/render", json={"messages": ask(*parts)}).json()
    without = httpx.post(f"{trusting.url}/v1/render", json={"messages": ask(*(part for part in parts if "data" not in part))}).json()
    assert len(plan["prompt_token_ids"]) == len(without["prompt_token_ids"]) + 10
    assert min(plan["prompt_token_ids"]) >= 0


def test_embeddings_of_the_models_own_tokens_say_what_the_text_says(trusting: Any, checkpoint: Path) -> None:
    """Rows of the model's own embedding, in place of its tokens, must not be told from the text."""
    weights = load_file(checkpoint / "model.safetensors")["language_model.model.embed_tokens.weight"]
    tokens = httpx.post(f"{trusting.url}/tokenize", json={"prompt": "abcdef", "add_special_tokens": False}).json()["tokens"]
    assert answer(trusting, "say ", embedded(npy(weights[tokens].numpy())), " now") == answer(trusting, "say abcdef now")


@pytest.mark.parametrize(
    "value", ["no base64!", npy(rows(1, size=8)), npy(np.zeros((0, HIDDEN_SIZE), np.float32)), 5], ids=lambda value: str(value)[:20]
)
def test_what_are_no_prompt_embeddings_is_refused_with_its_place(trusting: Any, value: Any) -> None:
    with trusting.client() as client, pytest.raises(openai.BadRequestError) as caught:
        client.chat.completions.create(messages=ask("hi", embedded(value)), **GREEDY)
    assert caught.value.param == "messages[0].content[1]"


def test_qwen_reads_prompt_embeddings_as_text(make_qwen_server: Any, picture: Picture) -> None:
    server = make_qwen_server(enable_prompt_embeds=True)
    text = answer(server, {"image_url": picture(1)}, embedded(npy(rows(1, count=3))), "what?", model="tiny-qwen")
    assert text is not None
    assert text != answer(server, {"image_url": picture(1)}, embedded(npy(rows(2, count=3))), "what?", model="tiny-qwen")


def test_pictures_and_embeddings_of_pictures_do_not_mix(trusting: Any, picture: Picture) -> None:
    parts = [{"image_url": picture(1)}, {"type": "image_embeds", "image_embeds": npy(rows(1))}]
    with trusting.client() as client, pytest.raises(openai.BadRequestError, match="either as media or as embeddings"):
        client.chat.completions.create(messages=ask(*parts), **GREEDY)


def test_processor_options_of_a_request_change_the_answer_and_are_checked(trusting: Any, picture: Picture) -> None:
    part = {"image_url": picture(1, size=(90, 70))}
    usual = answer(trusting, part, "?")
    assert answer(trusting, part, "?", extra_body={"ignore_eos": True, "mm_processor_kwargs": {"resample": 0}}) != usual
    with trusting.client() as client, pytest.raises(openai.BadRequestError, match="Unknown processor option"):
        client.chat.completions.create(messages=ask(part), **{**GREEDY, "extra_body": {"mm_processor_kwargs": {"zoom": 2}}})
    with trusting.client() as client, pytest.raises(openai.BadRequestError):
        client.chat.completions.create(messages=ask(part), **{**GREEDY, "extra_body": {"media_io_kwargs": {"image": {"zoom": 2}}}})


def test_low_detail_takes_fewer_tokens_where_the_family_knows_how(make_qwen_server: Any, picture: Picture) -> None:
    server = make_qwen_server()
    url = picture(1, size=(840, 840))

    def count(*details: str | None) -> int:
        parts = [
            {"type": "image_url", "image_url": {"url": url} if detail is None else {"url": url, "detail": detail}} for detail in details
        ]
        body = {"messages": ask(*parts, "?")}
        return int(httpx.post(f"{server.url}/v1/render", json=body).json()["usage"]["prompt_tokens_details"]["image_tokens"])

    usual = count(None)
    assert count("auto") == count("high") == usual
    assert usual == 64
    assert count("low") == 16
    assert count("low", "high") == count("low") + usual
