from __future__ import annotations

import base64
import socket
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import httpx
import pytest
import uvicorn

from inset.testing.sample_images import encode_image, make_pixels


@pytest.fixture
def client(load_example: Callable[[str], ModuleType], tiny_llava_folder: Path) -> Iterator[httpx.Client]:
    """The example on a port of its own."""
    app = load_example("service").make_app(str(tiny_llava_folder), plugins=["llava"])
    with socket.create_server(("127.0.0.1", 0)) as listening:
        server = uvicorn.Server(uvicorn.Config(app, log_level="warning", lifespan="on"))
        thread = threading.Thread(target=server.run, kwargs={"sockets": [listening]})
        thread.start()
        try:
            with httpx.Client(base_url=f"http://127.0.0.1:{listening.getsockname()[1]}", timeout=60) as client:
                yield client
        finally:
            server.should_exit = True
            thread.join(30)
            assert not thread.is_alive()


def ask(url: str) -> list[dict[str, Any]]:
    return [{"role": "user", "content": [{"type": "image_url", "image_url": {"url": url}}, {"type": "text", "text": "What?"}]}]


def test_a_conversation_comes_back_as_token_ids_and_items(client: httpx.Client) -> None:
    url = "data:image/png;base64," + base64.b64encode(encode_image(make_pixels(40, 30), "PNG")).decode()
    planned, processed = (client.post(path, json=ask(url)).json() for path in ("/plan", "/prompts"))
    (item,) = processed["items"]
    assert planned["token_ids"] == processed["token_ids"]
    assert planned["items"] == [{**item, "tensors": {}}]
    assert item["tensors"] == {"pixel_values": [56, 56, 3]}
    assert item["length"] == 16
    assert len(item["hash"]) == 64


def test_what_the_caller_can_mend_is_said_with_its_place(client: httpx.Client) -> None:
    answer = client.post("/prompts", json=ask("file:///etc/hostname"))
    assert answer.status_code == 400
    assert answer.json()["error"]["parameter"] == "messages[0].content[0]"
    assert "hostname" not in answer.text
