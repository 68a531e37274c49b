"""What the server allows: bodies, keys, origins, time, waiting; and what it holds afterwards."""

from __future__ import annotations

import asyncio
import json
import socket
from collections.abc import Callable
from typing import Any

import httpx
import openai
import pytest

from inset.testing.media_server import MediaServer, Reply
from inset.testing.waiting import wait_until

Picture = Callable[..., str]
LONG: dict[str, Any] = {"model": "tiny", "temperature": 0, "max_tokens": 3000, "ignore_eos": True}
SHORT: dict[str, Any] = {**LONG, "max_tokens": 2}


def ask(*content: Any) -> list[Any]:
    return [{"role": "user", "content": list(content)}]


def image(url: str) -> dict[str, Any]:
    return {"type": "image_url", "image_url": {"url": url}}


def post(server: Any, body: dict[str, Any], **more: Any) -> httpx.Response:
    return httpx.post(f"{server.url}/v1/chat/completions", json=body, timeout=60, **more)


def is_idle(server: Any) -> bool:
    engine = server.engine
    cache = engine.core.cache
    leases = 0 if cache is None else cache.stats.num_leases
    held = server.app.state.service.bodies.num_bytes_held
    return bool(engine.num_preparing == engine.num_unfinished == engine.stats.num_running == leases == held == 0)


@pytest.fixture(scope="module")
def small(make_server: Any) -> Any:
    return make_server(max_request_body_bytes=200_000, api_key=("first", "second"), allowed_origins=("https://good.example",))


def test_body_over_the_cap_is_413_and_the_next_is_answered(small: Any) -> None:
    headers = {"Authorization": "Bearer first"}
    response = post(small, {**SHORT, "messages": ask("x" * 250_000)}, headers=headers)
    assert response.status_code == 413
    assert response.json()["error"]["code"] == "request_too_large"

    def pieces() -> Any:
        yield b'{"messages": "'
        for _ in range(30):
            yield b"x" * 10_000

    assert httpx.post(f"{small.url}/v1/chat/completions", content=pieces(), headers=headers).status_code == 413
    assert post(small, {**SHORT, "messages": ask("hi")}, headers=headers).status_code == 200


@pytest.mark.parametrize("headers", [{}, {"Authorization": "Bearer wrong"}, {"Authorization": "Basic first"}, {"Authorization": "first"}])
def test_request_without_a_key_is_401_before_its_body_is_read(small: Any, headers: dict[str, str]) -> None:
    response = post(small, {"messages": ask("x" * 1000)}, headers=headers)
    assert response.status_code == 401
    assert response.json()["error"]["type"] == "authentication_error"
    assert httpx.get(f"{small.url}/v1/models", headers=headers).status_code == 401
    assert httpx.get(f"{small.url}/metrics", headers=headers).status_code == 401
    assert httpx.get(f"{small.url}/health", headers=headers).status_code == 200


@pytest.mark.parametrize("key", ["first", "second"])
def test_each_key_is_good(small: Any, key: str) -> None:
    with small.client(api_key=key) as client:
        assert client.models.list().data[0].id == "tiny"
    with small.client(api_key="wrong") as client, pytest.raises(openai.AuthenticationError):
        client.models.list()


def test_browsers_may_call_from_allowed_origins_alone(small: Any) -> None:
    def preflight(origin: str) -> httpx.Response:
        headers = {"Origin": origin, "Access-Control-Request-Method": "POST", "Access-Control-Request-Headers": "authorization"}
        return httpx.options(f"{small.url}/v1/chat/completions", headers=headers)

    assert preflight("https://good.example").headers["access-control-allow-origin"] == "https://good.example"
    assert "access-control-allow-origin" not in preflight("https://bad.example").headers


def test_uuids_of_one_key_are_unknown_to_another(small: Any, picture: Picture) -> None:
    named = {"type": "image_url", "image_url": {"url": picture(1)}, "uuid": "cat"}
    alone = {"type": "image_url", "image_url": {"url": None}, "uuid": "cat"}
    statuses = [
        post(small, {**SHORT, "messages": ask(part, "?")}, headers={"Authorization": f"Bearer {key}"}).status_code
        for key, part in (("first", named), ("first", alone), ("second", alone))
    ]
    assert statuses == [200, 200, 409]


def test_caches_are_reset_where_the_operator_allows_it(make_server: Any, server: Any, picture: Picture) -> None:
    paths = ("/reset_mm_cache", "/reset_encoder_cache", "/reset_prefix_cache")
    admin = make_server(enable_admin_endpoints=True)
    body = {**SHORT, "messages": ask(image(picture(1)), "?")}
    expected = post(admin, body).json()["choices"]
    for path in paths:
        assert httpx.post(server.url + path).status_code == 404
        assert httpx.post(admin.url + path).status_code == 200
        assert post(admin, body).json()["choices"] == expected


@pytest.mark.parametrize("stream", [False, True])
def test_request_that_takes_too_long_is_ended(make_server: Any, stream: bool) -> None:
    hasty = make_server(request_timeout_seconds=0.7)
    response = post(hasty, {**LONG, "messages": ask("hi"), "stream": stream})
    assert "request_timeout" in response.text
    assert response.status_code == (200 if stream else 503)
    wait_until(lambda: is_idle(hasty))


def test_slow_body_does_not_outlive_the_time(make_server: Any) -> None:
    hasty = make_server(request_timeout_seconds=0.7)
    host, port = hasty.url.removeprefix("http://").split(":")
    with socket.create_connection((host, int(port)), timeout=20) as connection:
        connection.sendall(b"POST /v1/chat/completions HTTP/1.1\r\nHost: x\r\nContent-Length: 100\r\n\r\n{")
        assert b" 503 " in connection.recv(4096)


def test_requests_beyond_the_queue_are_503_with_retry_after(make_server: Any, media_server: MediaServer, picture: Picture) -> None:
    import base64
    import threading

    narrow = make_server(max_waiting_requests=2, allow_private_media_hosts=("127.0.0.1",))
    gate = threading.Event()
    url = media_server.serve("/slow.png", Reply(body=base64.b64decode(picture(1).partition(",")[2]), gate=gate))

    async def run() -> list[httpx.Response]:
        async with httpx.AsyncClient(timeout=60) as client:

            async def send(content: list[Any]) -> httpx.Response:
                return await client.post(f"{narrow.url}/v1/chat/completions", json={**SHORT, "messages": ask(*content)})

            waiting = [asyncio.create_task(send([image(url), f"{n}?"])) for n in range(2)]
            await asyncio.to_thread(wait_until, lambda: narrow.engine.num_preparing == 2)
            refused = await send(["hi"])
            gate.set()
            return [*await asyncio.gather(*waiting), refused, await send(["hi"])]

    *answered, refused, after = asyncio.run(run())
    assert [response.status_code for response in answered] == [200, 200]
    assert (refused.status_code, after.status_code) == (503, 200)
    assert int(refused.headers["retry-after"]) >= 1
    assert refused.json()["error"]["type"] == "overloaded_error"


@pytest.mark.parametrize("stream", [False, True])
def test_client_that_goes_away_frees_what_it_held(server: Any, picture: Picture, stream: bool) -> None:
    body = json.dumps({**LONG, "messages": ask(image(picture(31)), "tell"), "stream": stream}).encode()
    host, port = server.url.removeprefix("http://").split(":")
    with socket.create_connection((host, int(port)), timeout=20) as connection:
        connection.sendall(b"POST /v1/chat/completions HTTP/1.1\r\nHost: x\r\nContent-Length: %d\r\n\r\n" % len(body) + body)
        wait_until(lambda: server.engine.num_unfinished == 1)
        if stream:
            assert b"200 OK" in connection.recv(4096)
    wait_until(lambda: is_idle(server))
    assert 'status="499"' in httpx.get(f"{server.url}/metrics").text


def test_client_that_goes_away_ends_the_download(make_server: Any, media_server: MediaServer) -> None:
    server = make_server(allow_private_media_hosts=("127.0.0.1",), max_fetch_attempts=1)
    url = media_server.serve("/endless.png", Reply(is_stalled=True, content_length="1000000", body=b"\x89PNG"))
    body = json.dumps({**LONG, "messages": ask(image(url), "tell")}).encode()
    host, port = server.url.removeprefix("http://").split(":")
    with socket.create_connection((host, int(port)), timeout=20) as connection:
        connection.sendall(b"POST /v1/chat/completions HTTP/1.1\r\nHost: x\r\nContent-Length: %d\r\n\r\n" % len(body) + body)
        media_server.wait_for_requests("/endless.png")
    wait_until(lambda: is_idle(server))
    media_server.wait_until_idle()
