"""A fetcher and its connectors from their opening to their end: none that hangs or leaves holds up another."""

from __future__ import annotations

import asyncio
import subprocess
import sys
import threading
from collections.abc import AsyncIterator
from concurrent.futures import ThreadPoolExecutor
from typing import ClassVar

import pytest

from inset.config import MediaConfig
from inset.errors import InvariantError, OverloadedError
from inset.media import connector_set
from inset.media.connector import MediaConnector
from inset.media.fetcher import MediaFetcher
from inset.media.stream import ByteStream, FetchLimits
from inset.media.url import MediaUrl
from inset.testing.media_io import EncodedBytesIO
from inset.testing.watched_connector import watch


async def give(data: bytes) -> AsyncIterator[bytes]:
    yield data


class StubbornConnector(MediaConnector):
    """Hangs or leaves where it is opened and closed."""

    schemes: ClassVar[tuple[str, ...]] = ("careless",)

    def __init__(self, *, on_open: str = "", on_close: str = "", on_stream_close: str = "") -> None:
        self._on_open, self._on_close, self._on_stream_close = on_open, on_close, on_stream_close
        self.is_opening = threading.Event()

    async def _misbehave(self, how: str) -> None:
        if how == "exit":
            raise SystemExit(3)
        if how == "hang":
            await asyncio.Event().wait()

    async def aopen(self) -> None:
        self.is_opening.set()
        await self._misbehave(self._on_open)

    async def aclose(self) -> None:
        await self._misbehave(self._on_close)

    async def open(self, url: MediaUrl, limits: FetchLimits) -> ByteStream:
        return ByteStream(chunks=give(b"fine"), close=lambda: self._misbehave(self._on_stream_close))


class StubbornNeighbour(StubbornConnector):
    schemes: ClassVar[tuple[str, ...]] = ("neighbour",)


def test_connector_that_hangs_while_it_opens_holds_up_no_other() -> None:
    stubborn = StubbornConnector(on_open="hang")
    with MediaFetcher([stubborn, StubbornNeighbour()], MediaConfig(image_fetch_deadline_seconds=600)) as fetcher:
        with ThreadPoolExecutor(1) as pool:
            waiting = pool.submit(fetcher.fetch_image, "careless://fine/", EncodedBytesIO())
            assert stubborn.is_opening.wait(20)
            assert fetcher.fetch_image("neighbour://fine/", EncodedBytesIO()).data == b"fine"
            assert not waiting.done()
            fetcher.close()
            assert isinstance(waiting.exception(20), OverloadedError)


def test_connector_that_exits_while_it_opens_leaves_the_loop_running() -> None:
    with MediaFetcher([StubbornConnector(on_open="exit"), StubbornNeighbour()], MediaConfig()) as fetcher:
        with pytest.raises(InvariantError, match=r"cannot be opened \(SystemExit\)"):
            fetcher.fetch_image("careless://fine/", EncodedBytesIO())
        assert fetcher.fetch_image("neighbour://fine/", EncodedBytesIO()).data == b"fine"


def test_stream_that_exits_while_it_closes_does_no_harm() -> None:
    with MediaFetcher([StubbornConnector(on_stream_close="exit")], MediaConfig()) as fetcher:
        for _ in range(2):
            assert fetcher.fetch_image("careless://fine/", EncodedBytesIO()).data == b"fine"


@pytest.mark.parametrize("how", ["exit", "hang"])
def test_connector_that_will_not_close_holds_up_no_other(how: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connector_set, "CLOSE_SECONDS", 0.05)
    neighbour = watch(StubbornNeighbour())
    fetcher = MediaFetcher([StubbornConnector(on_close=how), neighbour], MediaConfig())
    for scheme in ("careless", "neighbour"):
        fetcher.fetch_image(f"{scheme}://fine/", EncodedBytesIO())
    fetcher.close()
    assert neighbour.num_closed == 1


FORKED = """
import os, warnings
from inset.config import MediaConfig
from inset.errors import InvariantError
from inset.media.data_url import DataUrlConnector
from inset.media.connector import MediaConnector
from inset.media.fetcher import MediaFetcher
from inset.testing.media_io import EncodedBytesIO
warnings.simplefilter("ignore")
fetcher = MediaFetcher([DataUrlConnector()], MediaConfig())
fetcher.fetch_image("data:;base64,aGVsbG8=", EncodedBytesIO())
child = os.fork()
if child == 0:
    try:
        fetcher.fetch_image("data:;base64,aGVsbG8=", EncodedBytesIO())
    except InvariantError as error:
        os._exit(0 if "after the fork" in str(error) else 2)
    os._exit(1)
assert os.waitpid(child, 0)[1] == 0
fetcher.close()
"""


def test_fetcher_in_a_forked_process_says_so_instead_of_waiting() -> None:
    subprocess.run([sys.executable, "-c", FORKED], check=True, timeout=60)
