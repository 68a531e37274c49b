"""One request against the others: however many silent servers it names, their pictures arrive."""

from __future__ import annotations

import asyncio
import socket
import threading
from typing import Any

from inset.config import MediaConfig
from inset.media.budget import ProcessBudget, RequestBudget
from inset.media.fetch_places import MAX_SHARED_PER_HOST
from inset.media.fetcher import FetchItem, MediaFetcher
from inset.media.gather import MAX_AT_ONCE
from inset.media.http import HttpConnector
from inset.media.look_ups import AddressInfo, Resolve, look_up
from inset.testing.media_io import EncodedBytesIO
from inset.testing.media_server import MediaServer, Reply

WAIT_SECONDS = 20.0
PICTURE = b"picture" * 100


def make_budget() -> RequestBudget:
    return RequestBudget(MediaConfig(), ProcessBudget(1 << 30))


def make_fetcher(resolve: Resolve = look_up, **options: Any) -> MediaFetcher:
    return MediaFetcher([HttpConnector()], MediaConfig(**options), resolve=resolve)


def test_names_that_never_resolve_hold_up_nobody_else(media_server: MediaServer) -> None:
    media_server.serve("/good", PICTURE)
    is_held, num_asked = threading.Event(), threading.Semaphore(0)

    def resolve(host: str, port: int) -> list[AddressInfo]:
        if host != "good.example":
            num_asked.release()
            is_held.wait(WAIT_SECONDS)
        return [(socket.AF_INET, socket.SOCK_STREAM, socket.IPPROTO_TCP, "", ("127.0.0.1", port))]

    async def scenario(fetcher: MediaFetcher) -> None:
        silent = [FetchItem(f"http://{number}.silent.example.net/", (EncodedBytesIO(),)) for number in range(40)]
        attack = asyncio.ensure_future(fetcher.fetch_all_async(silent))
        assert await asyncio.to_thread(num_asked.acquire, timeout=WAIT_SECONDS)
        for _ in range(2):  # while they are waited for, and when their client has gone away
            ref = await fetcher.fetch_image_async(f"http://good.example:{media_server.port}/good", EncodedBytesIO())
            assert ref.data == PICTURE
            attack.cancel()
            await asyncio.wait([attack])

    with make_fetcher(resolve, allow_private_media_hosts=("good.example",), max_fetch_attempts=1) as fetcher:
        try:
            asyncio.run(scenario(fetcher))
        finally:
            is_held.set()


def test_silent_servers_of_one_request_hold_up_no_other_request(media_server: MediaServer) -> None:
    is_held = threading.Event()
    silent = [media_server.serve(f"/silent/{number}", Reply(body=b"%d" % number, gate=is_held)) for number in range(40)]
    good = media_server.serve("/good", PICTURE)

    async def scenario(fetcher: MediaFetcher) -> list[bytes]:
        fetches = asyncio.ensure_future(fetcher.fetch_all_async([FetchItem(url, (EncodedBytesIO(),)) for url in silent]))
        for number in range(MAX_AT_ONCE):
            await asyncio.to_thread(media_server.wait_for_requests, f"/silent/{number}")
        assert (await fetcher.fetch_image_async(good, EncodedBytesIO())).data == PICTURE
        assert sum(request.path.startswith("/silent") for request in media_server.requests) == MAX_AT_ONCE
        is_held.set()
        return [ref.data for (ref,) in await asyncio.wait_for(fetches, WAIT_SECONDS)]

    with make_fetcher(allow_private_media_hosts=("127.0.0.1",)) as fetcher:
        assert asyncio.run(scenario(fetcher)) == [b"%d" % number for number in range(40)]


def test_silent_servers_of_many_requests_hold_up_no_other_request(media_server: MediaServer) -> None:
    is_held = threading.Event()
    num_requests = MAX_SHARED_PER_HOST // MAX_AT_ONCE + 1
    silent = [
        media_server.serve(f"/silent/{number}", Reply(body=b"%d" % number, gate=is_held)) for number in range(num_requests * MAX_AT_ONCE)
    ]
    good = [media_server.serve(f"/good/{number}", PICTURE) for number in range(3)]

    async def scenario(fetcher: MediaFetcher) -> None:
        items = [FetchItem(url, (EncodedBytesIO(),)) for url in silent]
        attacks = [
            asyncio.ensure_future(fetcher.fetch_all_async(items[number::num_requests], budget=make_budget()))
            for number in range(num_requests)
        ]
        num_running = MAX_SHARED_PER_HOST + num_requests  # one of each request, and what they share
        while sum(request.path.startswith("/silent") for request in media_server.requests) < num_running:  # noqa: ASYNC110 - the server has threads
            await asyncio.sleep(0.01)
        refs = await fetcher.fetch_all_async([FetchItem(url, (EncodedBytesIO(),)) for url in good], budget=make_budget())
        assert [ref.data for (ref,) in refs] == [PICTURE] * 3
        assert sum(request.path.startswith("/silent") for request in media_server.requests) == num_running
        is_held.set()
        assert [len(refs) for refs in await asyncio.wait_for(asyncio.gather(*attacks), WAIT_SECONDS)] == [MAX_AT_ONCE] * num_requests

    with make_fetcher(allow_private_media_hosts=("127.0.0.1",)) as fetcher:
        asyncio.run(scenario(fetcher))
