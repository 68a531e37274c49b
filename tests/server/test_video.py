"""Videos over HTTP, with a family that samples frames by rules of its own."""

from __future__ import annotations

import base64
from collections.abc import Callable
from typing import Any

import httpx
import openai
import pytest

from inset.testing.sample_clips import encode_sound_track, make_tone, make_video

FIELDS: dict[str, Any] = {"model": "tiny-qwen", "temperature": 0, "max_tokens": 6}


def video(data: bytes) -> dict[str, Any]:
    return {"type": "video_url", "video_url": {"url": "data:video/mp4;base64," + base64.b64encode(data).decode()}}


def text(words: str) -> dict[str, Any]:
    return {"type": "text", "text": words}


@pytest.fixture(scope="module")
def server(make_qwen_server: Callable[..., Any]) -> Any:
    return make_qwen_server()


def ask(server: Any, *content: Any, **body: Any) -> Any:
    with server.client() as client:
        return client.chat.completions.create(
            messages=[{"role": "user", "content": list(content)}], **FIELDS, extra_body={"ignore_eos": True, **body}
        )


def test_a_video_between_pictures_is_answered_and_counted(server: Any, picture: Callable[..., str]) -> None:
    image = {"type": "image_url", "image_url": {"url": picture(1)}}
    answered = ask(server, image, text("then"), video(make_video(40)), text("then"), image, text("what?"))
    assert answered.usage.completion_tokens == 6
    details = answered.usage.prompt_tokens_details.model_dump()
    assert details["image_tokens"] > 0
    assert details["video_tokens"] > 0


def test_the_same_frames_give_the_same_answer_and_others_another(server: Any, picture: Callable[..., str]) -> None:
    def frames(*numbers: int) -> dict[str, Any]:
        parts = [picture(number, form="JPEG").partition(",")[2] for number in numbers]
        return {"type": "video_url", "video_url": {"url": "data:video/jpeg;base64," + ",".join(parts)}}

    given = [frames(1, 2, 3, 4), frames(1, 2, 3, 4), frames(5, 6, 7, 8), frames(4, 3, 2, 1)]
    first, again, *others = (ask(server, content, text("what?")).choices[0].message.content for content in given)
    assert first == again
    assert first not in others


def test_render_tells_the_grid_of_a_video_without_an_answer(server: Any) -> None:
    messages = [{"role": "user", "content": [video(make_video(90)), text("what?")]}]
    body = httpx.post(f"{server.url}/v1/render", json={"model": "tiny-qwen", "messages": messages}, timeout=60).json()
    [item] = body["items"]
    assert (item["modality"], item["grid"][0], item["is_exact"]) == ("video", 3, False)
    assert item["num_tokens"] == item["grid"][0] * item["grid"][1] * item["grid"][2] // 4
    assert body["usage"]["prompt_tokens_details"] == {"video_tokens": item["num_tokens"]}


def test_a_file_of_sound_alone_is_refused_by_its_place(server: Any) -> None:
    sound = encode_sound_track(make_tone(4000), container="mp4", codec="aac")
    with pytest.raises(openai.UnprocessableEntityError) as caught:
        ask(server, video(make_video(8)), text("and"), video(sound))
    assert "no video track" in str(caught.value)
    assert caught.value.param == "messages[0].content[2]"


def test_decode_options_of_a_request_need_the_operators_trust(server: Any, make_qwen_server: Callable[..., Any]) -> None:
    content = (video(make_video(90)), text("what?"))
    with pytest.raises(openai.BadRequestError, match="trust-request-mm-kwargs"):
        ask(server, *content, media_io_kwargs={"video": {"num_frames": 2}})
    trusting = make_qwen_server(trust_request_mm_kwargs=True)
    few, many = (ask(trusting, *content, media_io_kwargs={"video": {"num_frames": count}}).usage.prompt_tokens for count in (2, 12))
    assert few < many
