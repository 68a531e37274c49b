"""One connector that reads through another, with everything that holds for a client's own URL."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager
from typing import ClassVar

import pytest

from inset.config import MediaConfig
from inset.errors import MediaFetchError, MediaPolicyError, TooLargeError
from inset.media.connector import MediaConnector
from inset.media.fetcher import MediaFetcher
from inset.media.http import HttpConnector
from inset.media.stream import ByteStream, FetchLimits, Validators
from inset.media.url import MediaUrl
from inset.testing.conformance.connector import make_budget
from inset.testing.media_io import EncodedBytesIO
from inset.testing.media_server import MediaServer, Reply
from inset.testing.watched_connector import WatchedConnector, watch

MANY_BYTES = 1 << 40


class ShelfConnector(MediaConnector):
    """Gives as many pieces of 1,000 bytes as the host's name says, or none of what it should."""

    schemes: ClassVar[tuple[str, ...]] = ("shelf",)
    is_cacheable: ClassVar[bool] = True

    def __init__(self) -> None:
        self.limits: list[FetchLimits] = []

    async def open(self, url: MediaUrl, limits: FetchLimits) -> ByteStream:
        self.limits.append(limits)
        if url.host == "nothing":
            return None  # type: ignore[return-value]
        if url.host == "bug":
            raise KeyError("shelf")
        num_pieces = int(str(url.host))

        async def chunks() -> AsyncIterator[bytes]:
            for _ in range(num_pieces):
                yield bytes(1000)

        return ByteStream(chunks=chunks(), num_bytes=3000 if num_pieces == 2 else None, validators=Validators("kept"))


class FirstByteConnector(MediaConnector):
    """Gives the first byte of what another connector brings, all of which it reads without a limit."""

    schemes: ClassVar[tuple[str, ...]] = ("first+*",)

    def __init__(self) -> None:
        self.validators: list[Validators | None] = []

    async def open(self, url: MediaUrl, limits: FetchLimits) -> ByteStream:
        inner = MediaUrl.parse(url.text.removeprefix("first+"))
        careless = FetchLimits(max_bytes=MANY_BYTES, timeout_seconds=1e9)
        stream = await self.context.open(inner, careless)
        try:
            data = b"".join([chunk async for chunk in stream.chunks])
        finally:
            await stream.aclose()
        self.validators.append(stream.validators)

        async def chunks() -> AsyncIterator[bytes]:
            yield data[:1]

        return ByteStream(chunks=chunks(), num_bytes=1)


@contextmanager
def make_fetcher() -> Iterator[tuple[MediaFetcher, FirstByteConnector, ShelfConnector, WatchedConnector]]:
    first, shelf = FirstByteConnector(), ShelfConnector()
    watched = watch(shelf)
    with MediaFetcher([first, watched], MediaConfig(max_item_download_bytes=5000)) as fetcher:
        yield fetcher, first, shelf, watched


def test_connector_reads_through_another_one_which_is_opened_and_closed_once() -> None:
    with make_fetcher() as (fetcher, first, shelf, watched):
        for _ in range(2):
            assert fetcher.fetch_image("first+shelf://5/", EncodedBytesIO()).data == b"\0"
        assert (watched.num_opened, watched.num_streams_closed) == (1, 2)
        assert [limits.max_bytes for limits in shelf.limits] == [5000, 5000]
        assert first.validators == [Validators("kept")] * 2
    assert watched.num_closed == 1


@pytest.mark.parametrize(
    ("url", "error_class", "words"),
    [
        ("first+shelf://6/", TooLargeError, "5000"),
        ("first+shelf://2/", MediaFetchError, "2000 bytes arrived of 3000"),
        ("first+shelf://nothing/", MediaFetchError, "NoneType, not a ByteStream"),
        ("first+shelf://bug/", MediaFetchError, "KeyError"),
        ("first+other://5/", MediaPolicyError, "No media connector serves other:"),
        ("first+shelf://elsewhere/", MediaPolicyError, "--allowed-media-domains"),
        ("first+file:///etc/hostname", MediaPolicyError, "--allowed-local-media-path"),
    ],
)
def test_limits_and_rules_hold_for_what_a_connector_reads_through_another(url: str, error_class: type[Exception], words: str) -> None:
    allowed = ("2", "5", "6", "nothing", "bug", "first+file:")
    config = MediaConfig(max_item_download_bytes=5000, max_fetch_attempts=1, allowed_media_domains=allowed)
    with MediaFetcher([FirstByteConnector(), ShelfConnector()], config) as fetcher:
        with pytest.raises(error_class, match=words):
            fetcher.fetch_image(url, EncodedBytesIO())


def test_redirect_to_a_host_that_is_not_allowed_is_refused_through_another_connector(media_server: MediaServer) -> None:
    url = media_server.serve("/item", Reply.redirect("http://10.0.0.1/"))
    with MediaFetcher([FirstByteConnector(), HttpConnector()], MediaConfig(allow_private_media_hosts=("127.0.0.1",))) as fetcher:
        with pytest.raises(MediaPolicyError, match="private address"):
            fetcher.fetch_image(f"first+{url}", EncodedBytesIO())


def test_bytes_that_a_connector_reads_through_another_count_for_the_request() -> None:
    with make_fetcher() as (fetcher, _, _, _):
        budget = make_budget(3000)
        fetcher.fetch_image("first+shelf://3/", EncodedBytesIO(), budget=budget)
        assert budget.downloaded_bytes == 3000
        with pytest.raises(TooLargeError):
            fetcher.fetch_image("first+shelf://1/", EncodedBytesIO(), budget=budget)
