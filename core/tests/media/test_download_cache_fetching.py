"""The download cache behind a fetcher."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from inset.config import MediaConfig
from inset.errors import MediaDecodeError, MediaFetchError, TooLargeError
from inset.media.fetcher import MediaFetcher
from inset.media.header import MediaHeader
from inset.media.http import HttpConnector
from inset.media.ref import MediaRef
from inset.testing.conformance.connector import make_budget
from inset.testing.media_io import EncodedBytesIO
from inset.testing.media_server import MediaServer, Reply

PICTURE = b"picture" * 100


def files(folder: Path) -> list[Path]:
    return sorted(path for path in folder.rglob("*") if path.is_file() and path.name != "size")


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path / "cache"


@pytest.fixture
def fetcher(folder: Path) -> Iterator[MediaFetcher]:
    with make_fetcher(folder) as fetcher:
        yield fetcher


def make_fetcher(folder: Path | None, **options: Any) -> MediaFetcher:
    config = MediaConfig(**{"allow_private_media_hosts": ("127.0.0.1",), "download_cache_dir": folder, "max_fetch_attempts": 1, **options})
    return MediaFetcher([HttpConnector()], config)


def test_cache_is_off_by_default(media_server: MediaServer) -> None:
    url = media_server.serve("/a", PICTURE)
    with make_fetcher(None) as fetcher:
        for _ in range(2):
            fetcher.fetch_image(url, EncodedBytesIO())
    assert media_server.count("/a") == 2


def test_second_fetch_downloads_nothing_but_counts_against_the_budget(fetcher: MediaFetcher, media_server: MediaServer) -> None:
    url = media_server.serve("/a", PICTURE)
    budgets = [make_budget(), make_budget(), make_budget(len(PICTURE) - 1)]
    refs = [fetcher.fetch_image(url, EncodedBytesIO(), budget=budget) for budget in budgets[:2]]
    assert media_server.count("/a") == 1
    assert refs[0].key == refs[1].key
    assert budgets[1].downloaded_bytes == len(PICTURE)
    with pytest.raises(TooLargeError):
        fetcher.fetch_image(url, EncodedBytesIO(), budget=budgets[2])
    with pytest.raises(TooLargeError):
        fetcher.fetch_image(url, EncodedBytesIO(max_bytes=len(PICTURE) - 1))


def test_server_that_gave_validators_is_asked_whether_the_bytes_are_still_good(fetcher: MediaFetcher, media_server: MediaServer) -> None:
    first = Reply(body=PICTURE, headers={"ETag": '"1"', "Last-Modified": "Wed, 21 Oct 2015 07:28:00 GMT"})
    url = media_server.serve("/a", first, Reply(status=304), Reply(body=b"new", headers={"ETag": '"2"'}), Reply(status=304))
    assert [fetcher.fetch_image(url, EncodedBytesIO()).data for _ in range(4)] == [PICTURE, PICTURE, b"new", b"new"]
    asked = [request.headers.get("if-none-match") for request in media_server.requests]
    assert asked == [None, '"1"', '"1"', '"2"']
    assert media_server.requests[1].headers["if-modified-since"] == "Wed, 21 Oct 2015 07:28:00 GMT"


@pytest.mark.parametrize(("name", "value"), [("ETag", '"1"'), ("Last-Modified", "Wed, 21 Oct 2015 07:28:00 GMT")])
def test_redirect_that_leads_elsewhere_by_now_is_fetched_without_validators(
    fetcher: MediaFetcher, media_server: MediaServer, name: str, value: str
) -> None:
    first = media_server.serve("/first", Reply(body=PICTURE, headers={name: value}), Reply(status=304))
    second = media_server.serve("/second", Reply(body=b"second", headers={name: value}), Reply(status=304))
    url = media_server.serve("/latest", *(Reply.redirect(target) for target in (first, first, second, second, first)))
    assert [fetcher.fetch_image(url, EncodedBytesIO()).data for _ in range(4)] == [PICTURE, PICTURE, b"second", b"second"]
    condition = "if-none-match" if name == "ETag" else "if-modified-since"
    asked = [(request.path, request.headers.get(condition)) for request in media_server.requests if request.path != "/latest"]
    assert asked == [("/first", None), ("/first", value), ("/second", None), ("/second", value)]
    assert all(condition not in request.headers for request in media_server.requests if request.path == "/latest")
    with pytest.raises(MediaFetchError, match="304"):  # nobody had asked whether anything has changed
        fetcher.fetch_image(url, EncodedBytesIO())


def test_answer_that_forbids_storing_is_not_kept(fetcher: MediaFetcher, media_server: MediaServer, folder: Path) -> None:
    fetcher.fetch_image(media_server.serve("/a", Reply(body=PICTURE, headers={"Cache-Control": "private, No-Store"})), EncodedBytesIO())
    assert files(folder) == []


@pytest.mark.parametrize(
    "bad",
    [Reply(body=b"<html>sign in"), Reply(body=b""), Reply(status=204), Reply(status=404, body=b"x"), Reply.cut_short(PICTURE, num_bytes=9)],
)
def test_bad_payload_does_not_stick(fetcher: MediaFetcher, media_server: MediaServer, folder: Path, bad: Reply) -> None:
    url = media_server.serve("/a", bad, PICTURE)
    with pytest.raises((MediaFetchError, MediaDecodeError)):
        fetcher.fetch_image(url, EncodedBytesIO())
    assert files(folder) == []
    assert fetcher.fetch_image(url, EncodedBytesIO()).data == PICTURE


class DamagedIO(EncodedBytesIO):
    def load_bytes(self, data: bytes, header: MediaHeader | None = None) -> bytes:
        if data == PICTURE:
            raise MediaDecodeError("damaged")
        return super().load_bytes(data, header)


@pytest.mark.parametrize("derive", [lambda ref: ref, lambda ref: ref.fork(), lambda ref: ref.map(len, what="length")])
def test_item_that_fails_to_decode_later_is_dropped(
    fetcher: MediaFetcher, media_server: MediaServer, derive: Callable[[MediaRef[Any]], MediaRef[Any]]
) -> None:
    url = media_server.serve("/a", PICTURE, b"mended")
    ref = derive(fetcher.fetch_image(url, DamagedIO()))
    assert fetcher.fetch_image(url, DamagedIO()).data == PICTURE, "its header was good"
    assert media_server.count("/a") == 1
    with pytest.raises(MediaDecodeError, match="damaged"):
        ref.decode()
    assert fetcher.fetch_image(url, DamagedIO()).decode() == b"mended"


def test_damage_without_a_cache_drops_nothing(media_server: MediaServer) -> None:
    with make_fetcher(None) as uncached, pytest.raises(MediaDecodeError, match="damaged"):
        uncached.fetch_image(media_server.serve("/a", PICTURE), DamagedIO()).decode()


def test_cached_item_stays_under_the_policy(media_server: MediaServer, folder: Path) -> None:
    url = media_server.serve("/a", PICTURE)
    with make_fetcher(folder) as fetcher:
        fetcher.fetch_image(url, EncodedBytesIO())
    with make_fetcher(folder, allowed_media_domains=("elsewhere.example",)) as fetcher, pytest.raises(Exception, match="not allowed"):
        fetcher.fetch_image(url, EncodedBytesIO())
