"""Bad input gets its status, its place and its reason, and the next good request is answered."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import httpx
import openai
import pytest

from inset.testing.media_server import MediaServer, Reply

Picture = Callable[..., str]
GREEDY: dict[str, Any] = {"model": "tiny", "temperature": 0, "max_tokens": 4, "extra_body": {"ignore_eos": True}}
SECRET = "s3cr3t-token"


def ask(*content: Any) -> list[Any]:
    return [{"role": "user", "content": list(content)}]


def image(url: object, **more: Any) -> dict[str, Any]:
    return {"type": "image_url", "image_url": {"url": url}, **more}


BAD_CONTENT: list[tuple[list[Any], int, str, str | None]] = [
    ([{"type": "picture"}], 400, "no part type 'picture'", "messages[0].content[0]"),
    ([{"type": "text"}], 400, "needs text", "messages[0].content[0]"),
    ([7], 400, "object or text", "messages[0].content[0]"),
    (["hi", image(None)], 400, "needs a URL", "messages[0].content[1]"),
    ([{"type": "image_url", "image_url": {"url": "data:,", "detail": "huge"}}], 400, "detail", "messages[0].content[0]"),
    (["hi", {"type": "audio_url", "audio_url": {"url": "data:,"}}], 400, "does not take audio", None),
    ([{"type": "input_audio", "input_audio": {"data": "AAAA", "format": "wav"}}], 400, "does not take audio", None),
    ([{"type": "image_pil", "image_pil": "x"}], 400, "LLM.chat", "messages[0].content[0]"),
    ([{"type": "image_embeds", "image_embeds": "x"}], 400, "--enable-mm-embeds", "messages[0].content[0]"),
    ([{"type": "prompt_embeds", "data": "x"}], 400, "--enable-prompt-embeds", "messages[0].content[0]"),
    ([image("ftp://host/a.png")], 400, "ftp", "messages[0].content[0]"),
    ([image("file:///etc/passwd")], 400, "--allowed-local-media-path", "messages[0].content[0]"),
    ([image("http://127.0.0.1:1/a.png")], 400, "not allowed|private|loopback", "messages[0].content[0]"),
    (["hi", image("data:image/png;base64,!!!!")], 422, "not base64", "messages[0].content[1]"),
    ([image("data:image/png;base64,aGVsbG8=")], 422, "image", "messages[0].content[0]"),
    ([image(None, uuid="never-sent")], 409, "Send the media again", "messages[0].content[0]"),
]


@pytest.mark.parametrize(("content", "status", "words", "place"), BAD_CONTENT, ids=lambda value: str(value)[:40])
@pytest.mark.parametrize("stream", [False, True])
def test_bad_parts_are_refused_with_their_place(
    client: openai.OpenAI, content: list[Any], status: int, words: str, place: str | None, stream: bool
) -> None:
    with pytest.raises(openai.APIStatusError, match=words) as caught:
        client.chat.completions.create(messages=ask(*content), stream=stream, **GREEDY)
    assert caught.value.status_code == status
    body: Any = caught.value.body
    assert body["param"] == place
    assert body["code"]
    assert client.chat.completions.create(messages=ask("hi"), **GREEDY).choices


@pytest.mark.parametrize(
    ("fields", "error", "words"),
    [
        ({"model": "other"}, openai.NotFoundError, "no model 'other'"),
        ({"messages": []}, openai.BadRequestError, "at least one message"),
        ({"messages": [{"content": "hi"}]}, openai.BadRequestError, "role"),
        ({"messages": "hi"}, openai.BadRequestError, "list"),
        ({"max_tokens": 100_000}, openai.BadRequestError, "Ask for at most"),
        ({"messages": [{"role": "user", "content": "x" * 9000}]}, openai.BadRequestError, "context holds"),
        ({"temperature": 99}, openai.BadRequestError, "temperature"),
        ({"extra_body": {"mm_processor_kwargs": {"a": 1}}}, openai.BadRequestError, "--trust-request-mm-kwargs"),
        ({"extra_body": {"media_io_kwargs": {"image": {"a": 1}}}}, openai.BadRequestError, "--trust-request-mm-kwargs"),
        ({"extra_body": {"no_such_field": 1}}, openai.BadRequestError, "no_such_field"),
        ({"stream_options": {"include_usage": True}}, openai.BadRequestError, "stream_options"),
    ],
)
def test_bad_fields_are_refused_as_the_clients_own_errors(
    client: openai.OpenAI, fields: dict[str, Any], error: type[Exception], words: str
) -> None:
    with pytest.raises(error, match=words):
        client.chat.completions.create(**{"messages": ask("hi"), **GREEDY, **fields})
    assert client.chat.completions.create(messages=ask("hi"), **GREEDY).choices


@pytest.mark.parametrize(
    ("method", "path", "status"),
    [("GET", "/nothing", 404), ("GET", "/v1/chat/completions", 405), ("POST", "/v1/models", 405), ("GET", "/v1/models/other", 404)],
)
def test_unknown_paths_and_methods_get_an_error_body(server: Any, method: str, path: str, status: int) -> None:
    response = httpx.request(method, server.url + path)
    assert response.status_code == status
    assert response.json()["error"]["message"]


@pytest.mark.parametrize("body", [b"", b"{", b"[]", b"\xff", b'{"messages": [{"role": "user", "content": "\xff"}]}'])
def test_body_that_is_not_a_json_object_is_400(server: Any, body: bytes) -> None:
    response = httpx.post(f"{server.url}/v1/chat/completions", content=body)
    assert response.status_code == 400
    assert response.json()["error"]["stage"] == "parse"


def test_fetch_failures_name_the_remote_status_and_no_secret(make_server: Any, media_server: MediaServer, picture: Picture) -> None:
    server = make_server(allow_private_media_hosts=("127.0.0.1",), max_fetch_attempts=1)
    url = media_server.serve("/a.png", Reply(status=403))
    with server.client() as client, pytest.raises(openai.UnprocessableEntityError, match="403") as caught:
        client.chat.completions.create(messages=ask("hi", image(f"{url}?signature={SECRET}")), **GREEDY)
    body: Any = caught.value.body
    assert (body["modality"], body["item_index"], body["stage"], body["param"]) == ("image", 0, "fetch", "messages[0].content[1]")
    assert SECRET not in json.dumps(body)


def test_pictures_come_by_http_where_the_host_is_allowed(make_server: Any, media_server: MediaServer, picture: Picture) -> None:
    import base64

    server = make_server(allow_private_media_hosts=("127.0.0.1",), max_fetch_attempts=1)
    url = media_server.serve("/a.png", base64.b64decode(picture(1).partition(",")[2]))
    with server.client() as client:
        by_http = client.chat.completions.create(messages=ask(image(url), "?"), **GREEDY)
        by_data = client.chat.completions.create(messages=ask(image(picture(1)), "?"), **GREEDY)
    assert by_http.choices[0].message.content == by_data.choices[0].message.content
    assert media_server.count("/a.png") == 1


def test_pictures_come_from_files_where_a_folder_is_allowed(make_server: Any, picture: Picture, tmp_path_factory: Any) -> None:
    import base64

    folder: Path = tmp_path_factory.getbasetemp() / "media"
    folder.mkdir(exist_ok=True)
    (folder / "a.png").write_bytes(base64.b64decode(picture(1).partition(",")[2]))
    server = make_server(allowed_local_media_path=folder)
    with server.client() as client:
        by_file = client.chat.completions.create(messages=ask(image(f"file://{folder}/a.png"), "?"), **GREEDY)
        by_data = client.chat.completions.create(messages=ask(image(picture(1)), "?"), **GREEDY)
        with pytest.raises(openai.APIStatusError) as caught:
            client.chat.completions.create(messages=ask(image(f"file://{folder}/../secret.png"), "?"), **GREEDY)
    assert by_file.choices[0].message.content == by_data.choices[0].message.content
    assert "secret.png" not in str(caught.value.body)


def test_uuid_stands_for_bytes_that_were_sent_before(client: openai.OpenAI, picture: Picture) -> None:
    first = client.chat.completions.create(messages=ask(image(picture(21), uuid="cat"), "?"), **GREEDY)
    again = client.chat.completions.create(messages=ask(image(None, uuid="cat"), "?"), **GREEDY)
    assert again.choices[0].message.content == first.choices[0].message.content
    with pytest.raises(openai.BadRequestError, match="bound to other bytes"):
        client.chat.completions.create(messages=ask(image(picture(22), uuid="cat"), "?"), **GREEDY)


def test_shorthand_parts_and_two_pictures_are_understood(client: openai.OpenAI, picture: Picture) -> None:
    parts = [{"image_url": picture(1)}, {"type": "input_image", "image_url": picture(2)}, "which?"]
    full = [image(picture(1)), image(picture(2)), {"type": "text", "text": "which?"}]
    answers = [client.chat.completions.create(messages=ask(*content), **GREEDY) for content in (parts, full)]
    assert answers[0].choices[0].message.content == answers[1].choices[0].message.content
    usages = [answer.usage for answer in answers]
    assert all(usage is not None for usage in usages)
    assert len({usage.prompt_tokens for usage in usages if usage is not None}) == 1


def test_placeholder_that_a_user_types_stays_text(client: openai.OpenAI, picture: Picture) -> None:
    answer = client.chat.completions.create(messages=ask(image(picture(1)), "is <image> a tag?"), **GREEDY)
    assert answer.usage is not None
    assert answer.usage.prompt_tokens_details is not None
    assert answer.usage.prompt_tokens_details.model_dump()["image_tokens"] == 16


def test_limit_of_pictures_is_told_in_the_words_that_people_search_for(make_server: Any, picture: Picture) -> None:
    server = make_server(limit_mm_per_prompt={"image": 1})
    with server.client() as client, pytest.raises(openai.BadRequestError, match=r"At most 1 image\(s\) may be provided in one prompt\."):
        client.chat.completions.create(messages=ask(image(picture(1)), image(picture(2))), **GREEDY)
