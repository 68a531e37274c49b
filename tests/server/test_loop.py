"""What takes time never runs on the event loop: counted by where it runs, so that no clock is needed."""

from __future__ import annotations

import base64
import io
import threading
from collections import Counter
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import httpx
import numpy as np
import pytest
from PIL import Image

from inset.engine import prepared, prompt_parts
from inset.engine.chat_template import ChatTemplate
from inset.media.image import ImageIO
from inset.processing.processor import MultiModalProcessor
from inset.processing.tokenizer import Tokenizer
from inset.server import body
from inset.testing.media_server import MediaServer

SLOW: list[tuple[Any, str]] = [
    (body, "parse_json"),
    (base64, "b64decode"),
    (ChatTemplate, "render"),
    (Tokenizer, "encode"),
    (Tokenizer, "decode"),
    (ImageIO, "probe"),
    (ImageIO, "derive_key"),
    (ImageIO, "load_bytes"),
    (Image.Image, "tobytes"),
    (MultiModalProcessor, "apply_phase1"),
    (MultiModalProcessor, "apply_phase2"),
    (MultiModalProcessor, "plan_prompt"),
    (prepared, "framed_sha256"),
    (prompt_parts, "framed_sha256"),
]
HIDDEN_SIZE = 64


def embeds() -> dict[str, str]:
    stream = io.BytesIO()
    np.save(stream, np.ones((3, HIDDEN_SIZE), np.float32))
    return {"type": "prompt_embeds", "data": base64.b64encode(stream.getvalue()).decode()}


def test_nothing_that_takes_time_runs_on_the_event_loop(
    make_server: Any, media_server: MediaServer, picture: Callable[..., str], monkeypatch: pytest.MonkeyPatch
) -> None:
    server = make_server(allow_private_media_hosts=("127.0.0.1",), max_fetch_attempts=1, enable_prompt_embeds=True)
    calls: Counter[str] = Counter()
    on_loop: list[str] = []

    def watch(owner: Any, name: str) -> None:
        original = getattr(owner, name)

        def watched(*arguments: Any, **options: Any) -> Any:
            calls[name] += 1
            if threading.current_thread().name == "test-server":
                on_loop.append(name)
            return original(*arguments, **options)

        monkeypatch.setattr(owner, name, watched)

    for owner, name in SLOW:
        watch(owner, name)
    by_http = media_server.serve("/a.png", base64.b64decode(picture(901).partition(",")[2]))
    content = [{"image_url": picture(900, size=(400, 300))}, {"image_url": by_http}, "what?"]
    request = {"messages": [{"role": "user", "content": content}], "max_tokens": 2}
    with httpx.Client(base_url=server.url, timeout=60) as client:
        assert client.post("/v1/chat/completions", json=request).status_code == 200
        for parts in ([embeds()], ["hi", embeds()]):
            given = {"messages": [{"role": "user", "content": parts}], "max_tokens": 2}
            assert client.post("/v1/chat/completions", json=given).status_code == 200
        assert client.post("/v1/responses", json={"input": "hi", "max_output_tokens": 2}).status_code == 200
        assert client.post("/v1/render", json=request).status_code == 200
        tokens = client.post("/tokenize", json={"prompt": "hello"}).json()["tokens"]
        assert client.post("/detokenize", json={"tokens": tokens}).status_code == 200
    assert on_loop == []
    assert calls["framed_sha256"] == 2
    assert {
        "parse_json",
        "render",
        "encode",
        "decode",
        "probe",
        "derive_key",
        "load_bytes",
        "apply_phase1",
        "apply_phase2",
        "plan_prompt",
    } <= set(calls)


@pytest.mark.parametrize(
    ("owner", "name", "path", "value"),
    [
        (body, "parse_json", "/v1/chat/completions", {"messages": [{"role": "user", "content": "hi"}], "max_tokens": 1}),
        (body, "convert", "/v1/responses", {"input": "hi", "max_output_tokens": 1}),
        (ChatTemplate, "render", "/v1/render", {"messages": [{"role": "user", "content": "hi"}]}),
        (Tokenizer, "encode", "/tokenize", {"prompt": "hi"}),
        (Tokenizer, "id_to_token", "/tokenize", {"prompt": "hi", "return_token_strs": True}),
        (Tokenizer, "decode", "/detokenize", {"tokens": [1]}),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_health_answers_while_a_request_is_worked_on(
    server: Any, monkeypatch: pytest.MonkeyPatch, owner: Any, name: str, path: str, value: dict[str, Any]
) -> None:
    begun, has_answered = threading.Event(), threading.Event()
    original = getattr(owner, name)

    def held(*arguments: Any, **options: Any) -> Any:
        begun.set()
        assert has_answered.wait(60), "health did not answer meanwhile"
        return original(*arguments, **options)

    monkeypatch.setattr(owner, name, held)
    with ThreadPoolExecutor(1) as asking, httpx.Client(base_url=server.url, timeout=60) as client:
        asked = asking.submit(httpx.post, server.url + path, json=value, timeout=60)
        assert begun.wait(60)
        assert client.get("/health").status_code == 200
        has_answered.set()
        assert asked.result().status_code == 200


LONG = {"messages": [{"role": "user", "content": "long"}]}
SHORT = {"messages": [{"role": "user", "content": "hi"}]}


@pytest.mark.parametrize(
    ("flood", "long", "path"),
    [
        ("/tokenize", {"prompt": "long"}, "/v1/chat/completions"),
        ("/tokenize", LONG, "/v1/chat/completions"),
        ("/v1/render", LONG, "/v1/chat/completions"),
        ("/v1/chat/completions", {**LONG, "max_tokens": 1}, "/v1/render"),
    ],
)
def test_chats_and_plans_are_answered_while_many_of_the_other_are_worked_on(
    server: Any, monkeypatch: pytest.MonkeyPatch, flood: str, long: dict[str, Any], path: str
) -> None:
    begun, is_answered = threading.Event(), threading.Event()
    original = Tokenizer.encode

    def held(self: Tokenizer, text: str, *arguments: Any, **options: Any) -> list[int]:
        if "long" in text:
            begun.set()
            assert is_answered.wait(60), "the other request was not answered meanwhile"
        return original(self, text, *arguments, **options)

    monkeypatch.setattr(Tokenizer, "encode", held)
    with ThreadPoolExecutor(40) as asking, httpx.Client(base_url=server.url, timeout=60) as client:
        asked = [asking.submit(httpx.post, server.url + flood, json=long, timeout=60) for _ in range(40)]
        assert begun.wait(60)
        try:
            assert client.post(path, json={**SHORT, "max_tokens": 1}, timeout=20).status_code == 200
        finally:
            is_answered.set()
        assert {answer.result().status_code for answer in asked} == {200}


def big(middle: bytes, count: int) -> bytes:
    return b'{"messages":[{"role":"user","content":[' + middle * count + b'"end"]}]}'


HOSTILE = {
    "numbers": (big(b"1,", 3_000_000), 413),
    "objects": (big(b"{},", 1_000_000), 413),
    "short strings": (big(b'"abc",', 500_000), 413),
    "long strings": (big(b'"' + b"a" * 4000 + b'",', 2000), 413),
    "escaped text": (b'{"messages":[{"role":"user","content":"' + b"\\n" * 5_000_000 + b'"}]}', 413),
    "text that can never fit": (b'{"messages":[{"role":"user","content":"' + b"words " * 500_000 + b'"}]}', 400),
    "a long name": (b'{"model":"' + b"m" * 8_000_000 + b'","messages":[]}', 413),
    "a long role": (b'{"messages":[{"role":"' + b"m" * 8_000_000 + b'","content":""}]}', 413),
    "a long salt": (b'{"messages":[{"role":"user","content":""}],"cache_salt":"' + b"m" * 3_000_000 + b'"}', 400),
    "an unknown field": (b'{"' + b"m" * 3_000_000 + b'":1}', 400),
    "biases": (b'{"messages":[],"logit_bias":{' + b",".join(b'"%d":1' % number for number in range(100_000)) + b"}}", 400),
    "an endless string": (b'{"messages":[{"role":"user","content":"' + b"a" * 8_000_000, 400),
}


@pytest.mark.parametrize("name", HOSTILE)
def test_hostile_body_is_refused_before_it_is_tokenised(server: Any, monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    sent, status = HOSTILE[name]
    tokenised: list[str] = []
    monkeypatch.setattr(Tokenizer, "encode", lambda self, text, *arguments, **options: tokenised.append(text))
    with httpx.Client(base_url=server.url, timeout=60) as client:
        response = client.post("/v1/chat/completions", content=sent)
        assert (response.status_code, tokenised) == (status, []), response.text
        assert len(response.content) < 1500
        assert client.get("/health").status_code == 200


def test_text_that_can_never_fit_is_refused_before_it_is_tokenised_for_its_own_sake(server: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    tokenised: list[str] = []
    monkeypatch.setattr(Tokenizer, "encode", lambda self, text, *arguments, **options: tokenised.append(text))
    with httpx.Client(base_url=server.url, timeout=60) as client:
        response = client.post("/tokenize", json={"prompt": "words " * 500_000})
        assert (response.status_code, tokenised) == (400, []), response.text
        assert client.get("/health").status_code == 200
