"""Mixed traffic: good requests, cancelled ones, bad ones and resets at the same time, against every cache type.

Every good request is answered as a server without any cache answers it, every bad one is refused with its status, and nothing is held at
the end. Against `inset serve` a short form runs always; the long form (`make soak`) sends 2,000 requests, and watches the memory.
"""

from __future__ import annotations

import asyncio
import base64
import os
import random
import re
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import httpx
import psutil
import pytest

from inset.testing.media_server import MediaServer, Reply

Picture = Callable[..., str]
NUM_PICTURES = 12
RESETS = ("/reset_mm_cache", "/reset_encoder_cache", "/reset_prefix_cache")
BAD: list[tuple[Any, int]] = [
    ({"type": "picture"}, 400),
    ({"image_url": "data:image/png;base64,!!!!"}, 422),
    ({"image_url": "data:image/png;base64,aGVsbG8="}, 422),
    ({"image_url": "ftp://host/a.png"}, 400),
    ({"image_url": {"url": None}, "uuid": "never-sent"}, 409),
]


@dataclass
class Traffic:
    """Sends random requests to one server, and holds its answers against those of another."""

    url: str
    reference_url: str
    pictures: list[str]
    seed: int
    num_good: int = 0
    num_bad: int = 0
    num_cancelled: int = 0
    expected: dict[tuple[int, ...], str] = field(default_factory=dict)
    bad: list[tuple[Any, int]] = field(default_factory=lambda: list(BAD))

    async def run(self, num_requests: int, *, width: int = 8) -> None:
        chance = random.Random(self.seed)
        room = asyncio.Semaphore(width)
        limits = httpx.Limits(max_connections=2 * width)
        async with httpx.AsyncClient(timeout=60, limits=limits) as client, asyncio.TaskGroup() as group:
            for _ in range(num_requests):
                await room.acquire()
                group.create_task(self._one(client, chance.random(), chance)).add_done_callback(lambda _: room.release())

    async def _one(self, client: httpx.AsyncClient, draw: float, chance: random.Random) -> None:
        if draw < 0.02:
            response = await client.post(self.url + chance.choice(RESETS))
            assert response.status_code == 200
        elif draw < 0.12:
            part, status = chance.choice(self.bad)
            response = await client.post(f"{self.url}/v1/chat/completions", json=self._body([self._picture(chance), part]))
            assert response.status_code == status, response.text
            self.num_bad += 1
        elif draw < 0.27:
            await self._cancelled(client, chance)
        else:
            first = chance.randrange(len(self.pictures))
            await self._good(client, tuple((first + n) % len(self.pictures) for n in range(chance.choice((1, 1, 1, 2, 3)))))

    async def _good(self, client: httpx.AsyncClient, numbers: tuple[int, ...]) -> None:
        body = self._body([{"image_url": self.pictures[number]} for number in numbers])
        if numbers not in self.expected:
            self.expected[numbers] = await self._answer(client, self.reference_url, body)
        assert await self._answer(client, self.url, body) == self.expected[numbers]
        self.num_good += 1

    async def _answer(self, client: httpx.AsyncClient, url: str, body: dict[str, Any]) -> str:
        response = await client.post(f"{url}/v1/chat/completions", json=body)
        assert response.status_code == 200, response.text
        return str(response.json()["choices"][0]["message"]["content"])

    async def _cancelled(self, client: httpx.AsyncClient, chance: random.Random) -> None:
        body = {**self._body([self._picture(chance)]), "max_tokens": 500, "stream": chance.random() < 0.5}
        sending = asyncio.ensure_future(client.post(f"{self.url}/v1/chat/completions", json=body))
        await asyncio.wait([sending], timeout=chance.random() * 0.1)
        sending.cancel()
        await asyncio.gather(sending, return_exceptions=True)
        self.num_cancelled += 1

    def _picture(self, chance: random.Random) -> dict[str, Any]:
        return {"image_url": chance.choice(self.pictures)}

    def _body(self, content: list[Any]) -> dict[str, Any]:
        messages = [{"role": "user", "content": [*content, "what?"]}]
        return {"messages": messages, "temperature": 0, "max_tokens": 4, "ignore_eos": True}


def sizes(chance: random.Random) -> tuple[int, int]:
    return chance.choice([(80, 60), (56, 56), (1, 90), (90, 1), (300, 200), (57, 113)])


@pytest.fixture(scope="module")
def pictures(picture: Picture) -> list[str]:
    chance = random.Random(5)
    return [picture(number, size=sizes(chance), form=chance.choice(["PNG", "JPEG", "WEBP"])) for number in range(NUM_PICTURES)]


@pytest.fixture(scope="module")
def reference(make_server: Any) -> str:
    """A server that remembers nothing."""
    return str(make_server(mm_processor_cache_gb=0, enable_prefix_caching=False).url)


# Six pictures of 56 x 56 pixels fit, and twelve are asked about.
SMALL = {"mm_processor_cache_gb": 6 * 3 * 56 * 56 / 1024**3, "enable_admin_endpoints": True}


@pytest.mark.parametrize("cache_type", ["lru", "shm", "processor_only"])
def test_mixed_traffic_is_answered_right_and_leaves_nothing(make_server: Any, reference: str, pictures: list[str], cache_type: str) -> None:
    server = make_server(mm_processor_cache_type=cache_type, **SMALL)
    traffic = Traffic(server.url, reference, pictures, seed=1)
    asyncio.run(traffic.run(150))
    assert traffic.num_good > 80
    assert traffic.num_bad > 5
    assert traffic.num_cancelled > 10
    assert_nothing_is_held(server)


def assert_nothing_is_held(server: Any) -> None:
    engine = server.engine
    deadline = time.monotonic() + 20
    while True:
        held = {
            "preparing": engine.num_preparing,
            "unfinished": engine.num_unfinished,
            "running": engine.stats.num_running,
            "waiting": engine.stats.num_waiting,
            "leases": engine.core.cache.stats.num_leases,
            "bodies": server.app.state.service.bodies.num_bytes_held,
        }
        if not any(held.values()):
            return
        assert time.monotonic() < deadline, held
        time.sleep(0.02)


GAUGES = (
    "inset_requests_preprocessing",
    "inset_requests_unfinished",
    "inset_engine_requests_running",
    "inset_engine_requests_waiting",
    "inset_mm_cache_leases",
    "inset_mm_cache_items",
    "inset_engine_used_blocks",
    "inset_engine_encoder_cache_embeds",
)


def wait_until_metrics_are_zero(url: str, *, num_fronts: int) -> None:
    """After resets nothing is cached, so that whatever is left is held by a request that has ended."""
    body = {"messages": [{"role": "user", "content": "hi"}], "temperature": 0, "max_tokens": 1}
    deadline = time.monotonic() + 30
    num_clean = 0
    while num_clean < 3 * num_fronts:  # each front end answers for itself
        for path in RESETS:
            assert httpx.post(url + path).status_code == 200
        assert httpx.post(f"{url}/v1/chat/completions", json=body).status_code == 200
        assert httpx.post(f"{url}/reset_prefix_cache").status_code == 200
        page = httpx.get(f"{url}/metrics").text
        held = {
            name: value for name, value in re.findall(r"^(\w+)(?:\{[^}]*\})? (\S+)$", page, re.MULTILINE) if name in GAUGES and float(value)
        }
        num_clean = 0 if held else num_clean + 1
        assert time.monotonic() < deadline, held


def memory_of(server: Any) -> int:
    processes = [psutil.Process(server.process.pid), *server.family()]
    return sum(process.memory_info().rss for process in processes)


LONG = int(os.environ.get("SOAK_REQUESTS", "2000"))


@pytest.mark.parametrize(
    ("cache_type", "num_fronts", "num_requests"),
    [
        ("shm", 1, 100),
        pytest.param("lru", 1, LONG, marks=pytest.mark.soak),
        pytest.param("shm", 1, LONG, marks=pytest.mark.soak),
        pytest.param("processor_only", 1, LONG, marks=pytest.mark.soak),
        pytest.param("processor_only", 2, LONG, marks=pytest.mark.soak),
    ],
)
def test_real_processes_answer_right_hold_nothing_and_stop_growing(
    serve: Callable[..., Any],
    make_server: Any,
    picture: Picture,
    media_server: MediaServer,
    cache_type: str,
    num_fronts: int,
    num_requests: int,
) -> None:
    chance = random.Random(6)
    sent = [picture(number, size=sizes(chance)) for number in range(max(NUM_PICTURES, num_requests // 10))]
    urls = [media_server.serve(f"/{number}.png", base64.b64decode(url.partition(",")[2])) for number, url in enumerate(sent[::4])]
    sent[::4] = urls
    gone = media_server.serve("/gone.png", Reply(status=404))
    cut = media_server.serve("/cut.png", Reply(body=b"\x89PNG", content_length="5000"))
    options = ["--mm-processor-cache-type", cache_type, "--api-server-count", str(num_fronts), "--log-level", "WARNING"]
    small = ["--mm-processor-cache-gb", str(SMALL["mm_processor_cache_gb"]), "--kv-cache-bytes", "50000000", "--enable-admin-endpoints"]
    server = serve(*options, *small, "--allow-private-media-hosts", "127.0.0.1", "--max-fetch-attempts", "1")
    alone = make_server(
        mm_processor_cache_gb=0, enable_prefix_caching=False, allow_private_media_hosts=("127.0.0.1",), max_fetch_attempts=1
    )
    traffic = Traffic(server.url, alone.url, sent, seed=2, bad=[*BAD, ({"image_url": gone}, 422), ({"image_url": cut}, 422)])
    asyncio.run(traffic.run(num_requests // 2))
    settled = memory_of(server)
    asyncio.run(traffic.run(num_requests - num_requests // 2))
    wait_until_metrics_are_zero(server.url, num_fronts=num_fronts)
    growth = memory_of(server) - settled
    print(f"{cache_type}, {num_fronts} front end(s): {settled >> 20} MiB, then {growth / 2**20:+.1f} MiB;", traffic.num_good, "good")
    assert growth < settled * 0.05 + 30_000_000
    assert server.stop() == 0
    assert "Traceback" not in server.log
