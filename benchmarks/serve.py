"""Times the workloads of a server that is asked about pictures: ``python -m benchmarks.serve URL`` or ``... --serve MODEL``.

The URL may be that of any OpenAI-compatible server. With ``--serve`` a server of ours is started, and its time until ready and its memory
are measured too. One JSON line is printed for each workload; what a server does not have, such as ``/v1/render``, is left out.

The server must be allowed to fetch from 127.0.0.1: ``--allow-private-media-hosts 127.0.0.1``; ``--serve`` does so.
"""

from __future__ import annotations

import argparse
import asyncio
import base64
import functools
import io
import json
import multiprocessing
import re
import statistics
import subprocess
import sys
import time
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager, suppress
from multiprocessing.connection import Connection
from typing import Any, Final

import aiohttp
import numpy as np
import psutil
from PIL import Image

from inset.testing.media_server import MediaServer

NUM_CLIENTS: Final = 8
NUM_TOKENS: Final = 16
VGA: Final = (640, 480)
HD: Final = (1280, 720)
LARGE: Final = (4000, 3000)
SERVED_SECONDS: Final = 120.0


def make_image(number: int, size: tuple[int, int], form: str) -> bytes:
    """Returns an encoded picture that differs with its number: smooth colours with some noise, as photographs have."""
    random = np.random.default_rng(number)
    coarse = random.integers(0, 256, (12, 16, 3), dtype=np.uint8)
    pixels = np.asarray(Image.fromarray(coarse).resize(size, Image.Resampling.BICUBIC)).astype(np.int16)
    noise = random.integers(-6, 7, (size[1], size[0], 1), dtype=np.int16)
    buffer = io.BytesIO()
    Image.fromarray(np.clip(pixels + noise, 0, 255).astype(np.uint8)).save(buffer, form, quality=85)
    return buffer.getvalue()


def data_url(number: int, size: tuple[int, int], form: str = "JPEG") -> str:
    """Returns a picture as a data URL."""
    return f"data:image/{form.lower()};base64,{base64.b64encode(make_image(number, size, form)).decode()}"


class Client:
    """Asks one server."""

    def __init__(self, url: str, session: aiohttp.ClientSession, api_key: str | None) -> None:
        self._url = url.rstrip("/").removesuffix("/v1")
        self._session = session
        self._headers = {} if api_key is None else {"Authorization": f"Bearer {api_key}"}
        self.model = ""

    async def find_model(self) -> None:
        """Asks which model is served."""
        async with self._session.get(f"{self._url}/v1/models", headers=self._headers) as response:
            self.model = (await response.json())["data"][0]["id"]

    async def chat(self, content: list[dict[str, Any]], *, max_tokens: int) -> float:
        """Returns the seconds that one answer took."""
        fields = {"max_tokens": max_tokens, "temperature": 0, "ignore_eos": True}
        return await self._post("/v1/chat/completions", content, fields)

    async def render(self, content: list[dict[str, Any]]) -> float:
        """Returns the seconds that one plan took."""
        return await self._post("/v1/render", content, {})

    async def _post(self, path: str, content: list[dict[str, Any]], fields: dict[str, Any]) -> float:
        body = json.dumps({"model": self.model, "messages": [{"role": "user", "content": content}], **fields})
        started = time.perf_counter()
        headers = {**self._headers, "Content-Type": "application/json"}
        async with self._session.post(self._url + path, data=body, headers=headers) as response:
            text = await response.text()
            if response.status != 200:
                raise LookupError(f"{path} answered {response.status}: {text[:200]}")
        return time.perf_counter() - started


def question(*urls: str) -> list[dict[str, Any]]:
    """Returns pictures and a question about them."""
    return [*({"type": "image_url", "image_url": {"url": url}} for url in urls), {"type": "text", "text": "What is in the picture?"}]


async def rate(client: Client, urls: list[str], *, num_requests: int) -> dict[str, float]:
    """Returns the requests per second of several clients, each picture in turn."""
    left = iter(range(num_requests))

    async def work() -> list[float]:
        return [await client.chat(question(urls[number % len(urls)]), max_tokens=NUM_TOKENS) for number in left]

    started = time.perf_counter()
    seconds = [value for values in await asyncio.gather(*(work() for _ in range(NUM_CLIENTS))) for value in values]
    return {"requests_per_second": num_requests / (time.perf_counter() - started), "p50_ms": 1000 * statistics.median(seconds)}


async def chat_new(client: Client, requests: int) -> dict[str, float]:
    """Asks about a new picture each time."""
    seed = int(time.time())
    urls = [data_url(seed + number, VGA) for number in range(requests + NUM_CLIENTS)]
    await asyncio.gather(*(client.chat(question(url), max_tokens=NUM_TOKENS) for url in urls[requests:]))
    return await rate(client, urls[:requests], num_requests=requests)


async def chat_repeated(client: Client, requests: int) -> dict[str, float]:
    """Asks about the same picture again and again."""
    urls = [data_url(1, VGA)]
    await asyncio.gather(*(client.chat(question(*urls), max_tokens=NUM_TOKENS) for _ in range(NUM_CLIENTS)))
    return await rate(client, urls, num_requests=requests)


async def chat_large(client: Client, requests: int) -> dict[str, float]:
    """Asks one client's question about the same picture of 12 megapixels, for one token."""
    url = data_url(1, LARGE)
    await client.chat(question(url), max_tokens=1)
    return {"p50_ms": 1000 * statistics.median([await client.chat(question(url), max_tokens=1) for _ in range(max(5, requests // 8))])}


async def render(client: Client, requests: int, *, is_new: bool) -> dict[str, float]:
    """Plans prompts with four pictures of 720p."""
    rounds = max(5, requests // 8)
    seed = int(time.time()) if is_new else 1
    sets = [[data_url(seed + 4 * number + index, HD) for index in range(4)] for number in range(rounds + 1 if is_new else 1)]
    await client.render(question(*sets[0]))
    seconds = [await client.render(question(*sets[(number + 1) % len(sets)])) for number in range(rounds)]
    return {"p50_ms": 1000 * statistics.median(seconds)}


@contextmanager
def pictures_served(count: int) -> Iterator[list[str]]:
    """Serves new PNGs of 12 megapixels from a process of its own: sending them must not hold up the client that measures."""
    context = multiprocessing.get_context("spawn")
    ours, theirs = context.Pipe()
    process = context.Process(target=_serve_pictures, args=(theirs, count))
    process.start()
    theirs.close()
    try:
        if not ours.poll(SERVED_SECONDS):
            raise SystemExit("the pictures were not served in time")
        yield ours.recv()
    finally:
        ours.close()
        process.join(SERVED_SECONDS)


def _serve_pictures(pipe: Connection, count: int) -> None:
    """Serves until the other end of the pipe is closed."""
    with MediaServer() as media, suppress(EOFError):
        pipe.send([media.serve(f"/{number}.png", make_image(int(time.time()) + number, LARGE, "PNG")) for number in range(count)])
        pipe.recv()


async def text_beside_media(client: Client, requests: int) -> dict[str, float]:
    """Times short text requests alone, and while eight PNGs of 12 megapixels are fetched by http and processed."""
    text: list[dict[str, Any]] = [{"type": "text", "text": "Say hello."}]
    for _ in range(5):
        await client.chat(text, max_tokens=4)
    idle = [await client.chat(text, max_tokens=4) for _ in range(max(20, requests))]
    with pictures_served(8) as urls:
        busy = asyncio.gather(*(client.chat(question(url), max_tokens=1) for url in urls))
        beside = [await client.chat(text, max_tokens=4)]
        while not busy.done():
            beside.append(await client.chat(text, max_tokens=4))
        await busy
    worst_idle, worst_beside = (float(np.percentile(values, 99)) for values in (idle, beside))
    return {"idle_p99_ms": 1000 * worst_idle, "beside_p99_ms": 1000 * worst_beside, "ratio": worst_beside / worst_idle}


WORKLOADS: Final[dict[str, Callable[[Client, int], Awaitable[dict[str, float]]]]] = {
    "chat_new_640x480_8_clients": chat_new,
    "chat_repeated_640x480_8_clients": chat_repeated,
    "chat_repeated_12_megapixels_1_token": chat_large,
    "render_new_4x720p": functools.partial(render, is_new=True),
    "render_repeated_4x720p": functools.partial(render, is_new=False),
    "text_beside_8_pngs_of_12_megapixels": text_beside_media,
}


async def measure(url: str, names: list[str], requests: int, api_key: str | None) -> None:
    """Runs the workloads one after the other, and prints a line for each."""
    timeout = aiohttp.ClientTimeout(total=600)
    async with aiohttp.ClientSession(timeout=timeout) as session:
        client = Client(url, session, api_key)
        await client.find_model()
        for name in names:
            try:
                figures = await WORKLOADS[name](client, requests)
            except LookupError as error:
                print(json.dumps({"workload": name, "model": client.model, "left_out": str(error)}), flush=True)
                continue
            print(
                json.dumps({"workload": name, "model": client.model, **{key: round(value, 3) for key, value in figures.items()}}),
                flush=True,
            )


@contextmanager
def served(model: str, options: list[str]) -> Iterator[str]:
    """Starts a server of ours, prints how long that took, and at the end how much memory it has."""
    command = [
        sys.executable,
        "-m",
        "inset",
        "serve",
        model,
        "--port",
        "0",
        "--allow-private-media-hosts",
        "127.0.0.1",
        "--log-level",
        "WARNING",
    ]
    started = time.perf_counter()
    process = subprocess.Popen([*command, *options], stderr=subprocess.PIPE, text=True)
    assert process.stderr is not None
    try:
        found = next((match for line in process.stderr if (match := re.search(r"is ready at (\S+)/v1", line))), None)
        if found is None:
            raise SystemExit("the server did not start")
        print(json.dumps({"workload": "start", "ready_seconds": round(time.perf_counter() - started, 2)}), flush=True)
        yield found[1]
        family = [psutil.Process(process.pid), *psutil.Process(process.pid).children(recursive=True)]
        resident = sum(member.memory_info().rss for member in family) / 1024**2
        print(json.dumps({"workload": "memory", "resident_mib": round(resident), "processes": len(family)}), flush=True)
    finally:
        process.terminate()
        process.wait(60)


def main() -> None:
    """Runs the workloads that were named, or all of them."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("url", nargs="?", help="address of a running server")
    parser.add_argument("--serve", metavar="MODEL", help="start a server of ours for this checkpoint instead")
    parser.add_argument("--option", action="append", default=[], metavar="WORD", help="a further word for the command line of --serve")
    parser.add_argument("--workload", action="append", choices=list(WORKLOADS), help="only this one; may repeat")
    parser.add_argument("--requests", type=int, default=64, help="requests in each workload")
    parser.add_argument("--api-key")
    args = parser.parse_args()
    names = args.workload or list(WORKLOADS)
    if (args.url is None) == (args.serve is None):
        parser.error("name either the URL of a server, or a checkpoint with --serve")
    if args.url is not None:
        asyncio.run(measure(args.url, names, args.requests, args.api_key))
        return
    with served(args.serve, args.option) as url:
        asyncio.run(measure(url, names, args.requests, args.api_key))


if __name__ == "__main__":
    main()
