"""Mixed traffic: good requests, cancelled ones, bad ones and resets at the same time, against every cache type.

Every good request is answered as a server without any cache answers it, every bad one is refused with its status, and nothing is held at
the end. The long form runs against real processes, and watches their memory.
"""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import httpx
import psutil
import pytest

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
            part, status = chance.choice(BAD)
            response = await client.post(f"{self.url}/v1/chat/completions", json=self._body([self._picture(chance), part]))
            assert response.status_code == status, response.text
            self.num_bad += 1
        elif draw < 0.27:
            await self._cancelled(client, chance)
        else:
            await self._good(client, tuple(chance.randrange(NUM_PICTURES) for _ in range(chance.choice((1, 1, 1, 2, 3)))))

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


@pytest.mark.soak
@pytest.mark.parametrize("options", [("lru", "1"), ("shm", "1"), ("processor_only", "1"), ("processor_only", "2")])
def test_memory_of_real_processes_stays_on_a_plateau(
    serve: Callable[..., Any], reference: str, pictures: list[str], options: tuple[str, str]
) -> None:
    cache_type, num_fronts = options
    size = str(SMALL["mm_processor_cache_gb"])
    words = ["--mm-processor-cache-type", cache_type, "--api-server-count", num_fronts, "--mm-processor-cache-gb", size]
    server = serve(*words, "--enable-admin-endpoints", "--kv-cache-bytes", "50000000", "--log-level", "WARNING")

    def memory() -> int:
        return int(sum(process.memory_info().rss for process in [psutil.Process(server.process.pid), *server.family()]))

    traffic = Traffic(server.url, reference, pictures, seed=2)
    asyncio.run(traffic.run(500))
    settled = memory()
    asyncio.run(traffic.run(1500))
    assert memory() < settled * 1.15 + 30_000_000
    assert server.stop() == 0
    assert "Traceback" not in server.log
