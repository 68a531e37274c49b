"""The responses API, models, render, tokenize, health, version, metrics."""

from __future__ import annotations

import base64
from collections.abc import Callable
from typing import Any

import httpx
import openai
import pytest

import inset

Picture = Callable[..., str]


def picture_input(url: str) -> list[Any]:
    content = [{"type": "input_image", "image_url": url, "detail": "auto"}, {"type": "input_text", "text": "what?"}]
    return [{"role": "user", "content": content}]


OPTIONS: dict[str, Any] = {"model": "tiny", "temperature": 0, "max_output_tokens": 8, "extra_body": {"ignore_eos": True}}


def test_response_has_the_form_of_openais(client: openai.OpenAI, picture: Picture) -> None:
    answer = client.responses.create(input=picture_input(picture(1)), **OPTIONS)
    assert answer.object == "response"
    assert answer.status == "incomplete"
    assert answer.incomplete_details is not None
    assert answer.incomplete_details.reason == "max_output_tokens"
    assert answer.output_text
    assert answer.usage is not None
    assert answer.usage.output_tokens == 8
    assert answer.usage.input_tokens_details.model_dump()["image_tokens"] == 16


def test_response_says_what_a_chat_says(client: openai.OpenAI, picture: Picture) -> None:
    by_chat = client.chat.completions.create(
        model="tiny",
        messages=[
            {"role": "system", "content": "Be brief."},
            {"role": "user", "content": [{"type": "image_url", "image_url": {"url": picture(1)}}, {"type": "text", "text": "what?"}]},
        ],
        temperature=0,
        max_tokens=8,
        extra_body={"ignore_eos": True},
    )
    by_response = client.responses.create(input=picture_input(picture(1)), instructions="Be brief.", **OPTIONS)
    assert by_response.output_text == by_chat.choices[0].message.content


def test_response_streams_its_events_in_order(client: openai.OpenAI, picture: Picture) -> None:
    whole = client.responses.create(input=picture_input(picture(1)), **OPTIONS)
    events: list[Any] = list(client.responses.create(input=picture_input(picture(1)), stream=True, **OPTIONS))
    kinds = [event.type for event in events]
    assert kinds[:4] == ["response.created", "response.in_progress", "response.output_item.added", "response.content_part.added"]
    assert kinds[-4:] == ["response.output_text.done", "response.content_part.done", "response.output_item.done", "response.incomplete"]
    assert set(kinds[4:-4]) == {"response.output_text.delta"}
    assert [event.sequence_number for event in events] == list(range(len(events)))
    assert "".join(event.delta for event in events[4:-4]) == whole.output_text
    assert events[-1].response.output_text == whole.output_text
    assert all(event.logprobs == [] for event in events[4:-4])


def test_deltas_of_a_response_carry_the_log_probabilities_that_were_asked_for(client: openai.OpenAI) -> None:
    asked: dict[str, Any] = {**OPTIONS, "include": ["message.output_text.logprobs"], "top_logprobs": 2, "input": "hi"}
    [part] = client.responses.create(**asked).output[0].content
    deltas = [event for event in client.responses.create(**asked, stream=True) if event.type == "response.output_text.delta"]
    told = [entry for delta in deltas for entry in delta.logprobs]
    assert len(told) == len(part.logprobs) == 8
    for one, other in zip(told, part.logprobs, strict=True):
        assert one.token == other.token
        assert one.logprob == pytest.approx(other.logprob, abs=1e-4)
        assert [top.token for top in one.top_logprobs] == [top.token for top in other.top_logprobs]


@pytest.mark.parametrize(
    ("fields", "words", "parameter"),
    [
        ({"input": []}, "input must be", "input"),
        ({"input": [{"type": "reasoning"}]}, "must be a message", "input[0]"),
        ({"input": [{"role": "user", "content": [{"type": "picture"}]}]}, "picture", "input[0].content[0]"),
        ({"input": [{"role": "user", "content": [{"type": "picture"}]}], "instructions": "x"}, "picture", "input[0].content[0]"),
        ({"input": [{"role": "user", "content": [{"type": "input_image", "file_id": "f"}]}]}, "file_id", "input[0].content[0]"),
        ({"input": "hi", "previous_response_id": "resp_1"}, "previous_response_id", "previous_response_id"),
        ({"input": "hi", "tools": [{"type": "web_search"}]}, "tools", "tools"),
        ({"input": "hi", "background": True}, "no background", "background"),
    ],
)
def test_bad_responses_requests_name_their_field(client: openai.OpenAI, fields: dict[str, Any], words: str, parameter: str) -> None:
    with pytest.raises(openai.BadRequestError, match=words) as caught:
        client.responses.create(**OPTIONS, **fields)
    assert caught.value.param == parameter


def test_models_name_the_one_that_is_served(client: openai.OpenAI) -> None:
    [model] = client.models.list().data
    assert client.models.retrieve("tiny") == model
    assert model.model_dump()["max_model_len"] == 4096
    with pytest.raises(openai.NotFoundError):
        client.models.retrieve("other")


def test_render_shows_the_places_and_decodes_nothing(server: Any, picture: Picture) -> None:
    damaged = base64.b64encode(base64.b64decode(picture(41).partition(",")[2])[:-200]).decode()
    parts = [{"image_url": f"data:image/png;base64,{damaged}"}, {"image_url": picture(1)}, "what?"]
    answer = httpx.post(f"{server.url}/v1/render", json={"messages": [{"role": "user", "content": parts}]}).json()
    assert [item["modality"] for item in answer["items"]] == ["image", "image"]
    for item in answer["items"]:
        place = item["placeholder"]
        assert place["length"] == item["num_tokens"] == item["num_embeds"] == 16
        assert set(answer["prompt_token_ids"][place["offset"] : place["offset"] + 16]) == {3}
        assert len(item["mm_hash"]) == 64
        assert item["grid"] == [1, 4, 4]
    assert answer["usage"]["prompt_tokens_details"] == {"image_tokens": 32}


def test_render_takes_a_plain_prompt(server: Any) -> None:
    answer = httpx.post(f"{server.url}/v1/render", json={"prompt": "hello"}).json()
    assert answer["prompt"] == "hello"
    assert httpx.post(f"{server.url}/v1/render", json={}).status_code == 400
    assert httpx.post(f"{server.url}/v1/render", json={"prompt": "a", "messages": []}).status_code == 400


def test_tokenize_and_detokenize_are_inverse(server: Any) -> None:
    answer = httpx.post(f"{server.url}/tokenize", json={"prompt": "héllo", "return_token_strs": True}).json()
    assert answer["count"] == len(answer["tokens"]) == len(answer["token_strs"]) == 6
    assert httpx.post(f"{server.url}/detokenize", json={"tokens": answer["tokens"]}).json() == {"prompt": "héllo"}
    assert httpx.post(f"{server.url}/detokenize", json={"tokens": [5, 999]}).json()["error"]["param"] == "tokens[1]"


def test_tokenize_counts_what_a_chat_will_count(server: Any, client: openai.OpenAI, picture: Picture) -> None:
    messages: list[Any] = [{"role": "user", "content": [{"image_url": picture(1)}, "what?"]}]
    counted = httpx.post(f"{server.url}/tokenize", json={"messages": messages}).json()["count"]
    usage = client.chat.completions.create(model="tiny", messages=messages, max_tokens=1).usage
    assert usage is not None
    assert usage.prompt_tokens == counted


def test_health_and_version_answer(server: Any) -> None:
    assert httpx.get(f"{server.url}/health").json() == {"status": "ok"}
    assert httpx.get(f"{server.url}/version").json() == {"version": inset.__version__}


def test_metrics_time_every_stage_and_count_the_cache(server: Any, client: openai.OpenAI, picture: Picture) -> None:
    messages: list[Any] = [{"role": "user", "content": [{"image_url": picture(51)}, "what?"]}]
    for _ in range(2):
        client.chat.completions.create(model="tiny", messages=messages, max_tokens=2)
    page = httpx.get(f"{server.url}/metrics").text
    for stage in ("fetch", "plan", "decode", "materialize", "queue", "encode", "prefill", "decode_tokens"):
        assert f'inset_stage_seconds_bucket{{le="+Inf",modality="image",plugin="inset-llava",stage="{stage}"}}' in page
    for name in ("inset_mm_cache_hits_total", "inset_mm_cache_bytes", "inset_requests_preprocessing", "inset_engine_encoder_runs_total"):
        assert f"\n{name} " in page
    assert 'inset_requests_total{route="/v1/chat/completions",status="200"}' in page
