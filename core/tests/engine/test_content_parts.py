"""Every content part that clients send is read, or refused with its place."""

from __future__ import annotations

from typing import Any

import pytest

from inset.engine.content_parts import ContentPolicy, MediaPart, TextPart, parse_content
from inset.errors import InvalidRequestError

SERVER = ContentPolicy()
OFFLINE = ContentPolicy(accept_objects=True, accept_mm_embeds=True, accept_prompt_embeds=True)
URL = "https://example.com/a.png"


def read(part: Any, policy: ContentPolicy = SERVER) -> Any:
    return parse_content([part], policy, parameter="messages[2].content")[0]


@pytest.mark.parametrize(
    ("part", "text"),
    [
        ("bare", "bare"),
        ({"type": "text", "text": "a"}, "a"),
        ({"text": "shorthand"}, "shorthand"),
        ({"type": "input_text", "text": "b"}, "b"),
        ({"type": "output_text", "text": "c"}, "c"),
        ({"type": "refusal", "refusal": "no"}, "no"),
        ({"type": "thinking", "thinking": "hm"}, "hm"),
        ({"type": "tool_reference", "name": "search"}, "search"),
        ({"type": "text", "text": ""}, ""),
    ],
)
def test_text_parts_give_their_text(part: Any, text: str) -> None:
    assert read(part) == TextPart(text)


@pytest.mark.parametrize(
    ("part", "modality", "source"),
    [
        ({"type": "image_url", "image_url": {"url": URL}}, "image", URL),
        ({"type": "image_url", "image_url": URL}, "image", URL),
        ({"image_url": URL}, "image", URL),
        ({"type": "input_image", "image_url": URL}, "image", URL),
        ({"type": "image", "image": URL}, "image", URL),
        ({"type": "image", "url": URL}, "image", URL),
        ({"type": "video_url", "video_url": {"url": URL}}, "video", URL),
        ({"type": "audio_url", "audio_url": {"url": URL}}, "audio", URL),
        ({"type": "input_audio", "input_audio": {"data": "AAAA", "format": "mp3"}}, "audio", "data:audio/mp3;base64,AAAA"),
    ],
)
def test_media_parts_give_modality_and_url(part: Any, modality: str, source: str) -> None:
    media = read(part)
    assert isinstance(media, MediaPart)
    assert (media.modality, media.kind, media.source) == (modality, "url", source)
    assert media.parameter == "messages[2].content[0]"


def test_uuid_stands_beside_the_bytes_or_alone() -> None:
    both = read({"type": "image_url", "image_url": {"url": URL}, "uuid": "a"})
    alone = read({"type": "image_url", "image_url": None, "uuid": "a"})
    assert (both.kind, both.uuid) == ("url", "a")
    assert (alone.kind, alone.source, alone.uuid) == ("uuid", None, "a")


@pytest.mark.parametrize("detail", ["low", "high", "auto"])
def test_detail_is_read_in_both_spellings(detail: str) -> None:
    assert read({"type": "image_url", "image_url": {"url": URL, "detail": detail}}).detail == detail
    assert read({"type": "input_image", "image_url": URL, "detail": detail}).detail == detail


@pytest.mark.parametrize(
    ("part", "words"),
    [
        ({"type": "picture"}, "no part type 'picture'"),
        ({}, "needs a type"),
        ({"text": "a", "image_url": URL}, "needs a type"),
        (7, "must be an object or text"),
        ({"type": "text", "text": 7}, "needs text"),
        ({"type": "image_url", "image_url": {}}, "needs a URL"),
        ({"type": "image_url", "image_url": {"url": 7}}, "needs a URL"),
        ({"type": "image_url", "image_url": {"url": URL, "detail": "ultra"}}, "detail must be one of"),
        ({"type": "image_url", "image_url": URL, "uuid": 7}, "uuid must be text"),
        ({"type": "image_url", "image_url": URL, "uuid": ""}, "uuid must be text"),
        ({"type": "input_image", "file_id": "f"}, "Files are not stored"),
        ({"type": "input_audio", "input_audio": {"data": 7}}, "input_audio needs"),
        ({"type": "image_pil", "image_pil": object()}, "LLM.chat"),
        ({"type": "image_embeds", "image_embeds": "x"}, "--enable-mm-embeds"),
        ({"type": "video_embeds", "video_embeds": "x"}, "--enable-mm-embeds"),
        ({"type": "audio_embeds", "audio_embeds": "x"}, "--enable-mm-embeds"),
        ({"type": "prompt_embeds", "data": "x"}, "--enable-prompt-embeds"),
    ],
)
def test_parts_that_cannot_be_served_are_refused_with_their_place(part: Any, words: str) -> None:
    with pytest.raises(InvalidRequestError, match=words) as caught:
        read(part)
    assert caught.value.parameter == "messages[2].content[0]"


def test_objects_and_embeddings_pass_where_they_are_accepted() -> None:
    picture = object()
    assert read({"type": "image_pil", "image_pil": picture}, OFFLINE).source is picture
    assert read({"type": "image", "image": picture}, OFFLINE).kind == "object"
    assert read({"type": "image", "image": "/a/b.png"}, OFFLINE) == MediaPart(
        modality="image", kind="object", source="/a/b.png", parameter="messages[2].content[0]"
    )
    assert read({"type": "image_embeds", "image_embeds": {"embeds": "x"}}, OFFLINE).kind == "embeds"
    assert read({"type": "prompt_embeds", "data": "x"}, OFFLINE).modality == "prompt"


@pytest.mark.parametrize("content", [7, {"type": "text"}, b"bytes"])
def test_content_that_is_neither_text_nor_list_is_refused(content: Any) -> None:
    with pytest.raises(InvalidRequestError, match="text or a list of parts"):
        parse_content(content, SERVER, parameter="messages[0].content")


def test_missing_content_has_no_parts() -> None:
    assert parse_content(None, SERVER, parameter="messages[0].content") == []
