"""What takes time never runs on the event loop: counted by where it runs, so that no clock is needed."""

from __future__ import annotations

import base64
import threading
from collections import Counter
from collections.abc import Callable
from typing import Any

import httpx
import pytest
from PIL import Image

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
]


def test_nothing_that_takes_time_runs_on_the_event_loop(
    make_server: Any, media_server: MediaServer, picture: Callable[..., str], monkeypatch: pytest.MonkeyPatch
) -> None:
    server = make_server(allow_private_media_hosts=("127.0.0.1",), max_fetch_attempts=1)
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
        assert client.post("/v1/responses", json={"input": "hi", "max_output_tokens": 2}).status_code == 200
        assert client.post("/v1/render", json=request).status_code == 200
        tokens = client.post("/tokenize", json={"prompt": "hello"}).json()["tokens"]
        assert client.post("/detokenize", json={"tokens": tokens}).status_code == 200
    assert on_loop == []
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
