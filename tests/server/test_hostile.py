"""Whatever arrives at the port: an answer of 4xx, no secret in it or in the log, and the next good request is answered."""

from __future__ import annotations

import contextlib
import json
import logging
import re
import socket
from collections.abc import Callable, Iterator
from typing import Any

import httpx
import pytest

Picture = Callable[..., str]
GOOD: dict[str, Any] = {"messages": [{"role": "user", "content": "hi"}], "max_tokens": 2, "temperature": 0}
SECRET = "s3cr3t"

WRONG_VALUES = [
    "null", "true", "-1", "1e308", "1e400", "NaN", "99999999999999999999", "0.5",
    '""', '"x"', '"\\ud800"', '"\\u0000"', "[]", "{}", "[null]",
    "[[]]", '[{"a":1}]', '{"":null}', '{"messages":1}', '{"self":1}', '{"99999999999999999999":1}', '{"5":1e308}', "[-1]", '["\\ud800"]',
]  # fmt: skip
FIELDS = [
    "model", "messages", "n", "max_tokens", "max_completion_tokens", "logit_bias", "logprobs", "top_logprobs", "stream", "stream_options",
    "tools", "tool_choice", "documents", "add_generation_prompt", "continue_final_message", "chat_template_kwargs", "response_format",
    "modalities", "temperature", "top_p", "top_k", "min_p", "presence_penalty", "frequency_penalty", "repetition_penalty", "seed", "stop",
    "stop_token_ids", "include_stop_str_in_output", "ignore_eos", "min_tokens", "skip_special_tokens", "mm_processor_kwargs",
    "media_io_kwargs", "cache_salt", "user", "metadata",
]  # fmt: skip

HOSTILE_URLS = [
    f"http://169.254.169.254/latest/meta-data?{SECRET}",
    f"http://user:{SECRET}@127.0.0.1/",
    f"http://2130706433/?{SECRET}",
    f"http://0x7f.1/{SECRET}",
    f"http://[::ffff:127.0.0.1]/{SECRET}",
    f"http://[::1]:1/?{SECRET}",
    f"http://a\r\nHost: {SECRET}/",
    f"file:///etc/{SECRET}",
    f"gopher://{SECRET}.example/",
    f"s3://bucket/{SECRET}?{SECRET}",
    f"/etc/{SECRET}",
    f"data:image/png;base64,{SECRET}!!!!",
    "data:,",
    "http://",
    "http:///x",
    "x",
]
PARTS: list[Callable[[str], dict[str, Any]]] = [
    lambda url: {"type": "image_url", "image_url": {"url": url}},
    lambda url: {"type": "input_image", "image_url": url},
    lambda url: {"type": "image", "image": url},
    lambda url: {"type": "image", "path": url},
    lambda url: {"type": "video_url", "video_url": {"url": url}},
    lambda url: {"type": "input_video", "video_url": url},
    lambda url: {"type": "audio_url", "audio_url": {"url": url}},
    lambda url: {"type": "input_audio", "input_audio": {"data": url, "format": url}},
    lambda url: {"image_url": url, "uuid": "known"},
]


@pytest.fixture(scope="module")
def hostile_client(server: Any) -> Iterator[httpx.Client]:
    with httpx.Client(base_url=server.url, timeout=60) as client:
        yield client
        assert client.post("/v1/chat/completions", json=GOOD).status_code == 200


@pytest.mark.parametrize("field", FIELDS)
def test_no_value_of_a_field_is_our_fault_or_stops_the_engine(hostile_client: httpx.Client, field: str) -> None:
    others = ",".join(f'"{name}":{json.dumps(value)}' for name, value in GOOD.items() if name != field)
    for value in WRONG_VALUES:
        response = hostile_client.post("/v1/chat/completions", content=f'{{"{field}":{value},{others}}}')
        assert response.status_code in (200, 400, 404), (field, value, response.text)
        if response.status_code >= 400:
            assert response.json()["error"]["message"]


@pytest.mark.parametrize(
    "options", [{"temperature": 5e-324}, {"temperature": 1, "stop_token_ids": list(range(300)), "min_tokens": 2}], ids=str
)
def test_options_at_the_edge_of_what_is_allowed_are_answered(hostile_client: httpx.Client, options: dict[str, Any]) -> None:
    response = hostile_client.post("/v1/chat/completions", json={**GOOD, **options})
    assert response.status_code == 200, response.text


@pytest.mark.parametrize("url", HOSTILE_URLS)
def test_no_part_reaches_where_it_may_not_and_no_secret_comes_out(
    hostile_client: httpx.Client, caplog: pytest.LogCaptureFixture, url: str
) -> None:
    caplog.set_level(logging.DEBUG, "inset")
    for part in PARTS:
        messages = [{"role": "user", "content": [part(url), "?"]}]
        response = hostile_client.post("/v1/chat/completions", json={**GOOD, "messages": messages})
        assert response.status_code in (400, 422), (part(url), response.text)
        assert SECRET not in response.text
    assert SECRET not in caplog.text


@pytest.mark.parametrize(
    "body",
    [
        '{"messages": [{"role": "user", "content": "hi", "x": ' + "[" * 900 + "]" * 900 + "}]}",
        '{"messages": [{"role": "user", "content": "hi"}], "tools": [{"x": ' + '{"a":' * 900 + "1" + "}" * 903,
        '{"messages": ' + "[" * 200_000 + "]" * 200_000 + "}",
        '{"messages": [{"role": "user", "content": [{"type": "' + "Q" * 300_000 + '"}]}]}',
        '{"messages": [{"role": "user", "content": [{"type": "image_url", "image_url": "data:,", "detail": "' + "Q" * 300_000 + '"}]}]}',
        '{"' + "Q" * 300_000 + '": 1}',
        "\ufeff" + json.dumps(GOOD),
        json.dumps(GOOD) + "\0",
    ],
    ids=lambda body: body[:40],
)  # fmt: skip
def test_deep_and_long_bodies_are_refused_in_few_words(hostile_client: httpx.Client, body: str) -> None:
    response = hostile_client.post("/v1/chat/completions", content=body.encode())
    assert response.status_code == 400
    assert len(response.content) < 1500


@pytest.mark.parametrize(
    ("method", "path", "status"),
    [
        ("OPTIONS", "/v1/chat/completions", 405),
        ("TRACE", "/health", 405),
        ("POST", "/health", 405),
        ("HEAD", "/health", 200),
        ("GET", "/v1/models/%2e%2e/%2e%2e/etc/passwd", 404),
        ("GET", "/v1/models/" + "a" * 30_000, 404),
        ("GET", "//health", 404),
        ("GET", "/health/", 404),
        ("GET", "/docs", 404),
        ("GET", "/openapi.json", 404),
    ],
)
def test_odd_paths_and_methods_are_refused(hostile_client: httpx.Client, method: str, path: str, status: int) -> None:
    response = hostile_client.request(method, path)
    assert response.status_code == status
    assert len(response.content) < 500


def exchange(server: Any, *pieces: bytes) -> bytes:
    """Sends bytes as they are, and returns all that comes back until the server closes, or cuts what it refuses to read on."""
    host, port = server.url.removeprefix("http://").split(":")
    answer = b""
    with (
        socket.create_connection((host, int(port)), timeout=30) as connection,
        contextlib.suppress(ConnectionResetError, BrokenPipeError),
    ):
        for piece in pieces:
            connection.sendall(piece)
        while piece := connection.recv(65536):
            answer += piece
    return answer


def request(*headers: str, body: bytes = json.dumps(GOOD).encode()) -> bytes:
    head = ["POST /v1/chat/completions HTTP/1.1", "Host: x", f"Content-Length: {len(body)}", *headers]
    return "\r\n".join(head).encode() + b"\r\n\r\n" + body


def statuses(answer: bytes) -> list[int]:
    return [int(found) for found in re.findall(rb"HTTP/1\.1 (\d+)", answer)]


@pytest.mark.parametrize("offer", ["Upgrade: h2c", "upgrade: websocket"])
def test_offer_of_another_protocol_is_left_alone(server: Any, offer: str) -> None:
    headers = ("Connection: Upgrade, HTTP2-Settings", offer, "HTTP2-Settings: AAMAAABkAARAAAAAAAIAAAAA")
    asked = request(*headers), request("Connection: close")
    assert statuses(exchange(server, *asked)) == [200, 200]


def test_pipelined_requests_are_answered_in_order(server: Any) -> None:
    answer = exchange(server, request() + request(body=b"{") + request("Connection: close"))
    assert statuses(answer) == [200, 400, 200]


def test_body_may_come_in_chunks_and_in_single_bytes(server: Any) -> None:
    body = json.dumps(GOOD).encode()
    head = b"POST /v1/chat/completions HTTP/1.1\r\nHost: x\r\nConnection: close\r\nTransfer-Encoding: chunked\r\n\r\n"
    assert statuses(exchange(server, head, *(b"1\r\n%c\r\n" % byte for byte in body), b"0\r\n\r\n")) == [200]


@pytest.mark.parametrize(
    "data",
    [
        b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03 TLS\r\n\r\n",
        b"GET / HTTP/1.1\r\nHost: x\r\nContent-Length: -5\r\n\r\n",
        b"POST /v1/render HTTP/1.1\r\nHost: x\r\nContent-Length: 99999999999999999999999\r\n\r\n",
        b"POST /v1/render HTTP/1.1\r\nHost: x\r\nContent-Length: 2\r\nContent-Length: 5\r\n\r\n{}",
        b"POST /v1/render HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\nZZ\r\n",
        b"GET /health HTTP/1.1\r\nHost: x\r\nX: " + b"y" * 1_000_000 + b"\r\nConnection: close\r\n\r\n",
    ],
    ids=lambda data: repr(data[:60]),
)
def test_what_is_not_http_is_refused_and_disturbs_nobody(server: Any, data: bytes) -> None:
    assert all(status in (200, 400, 431) for status in statuses(exchange(server, data)))
    assert httpx.get(f"{server.url}/health").status_code == 200
