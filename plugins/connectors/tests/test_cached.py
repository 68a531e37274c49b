from __future__ import annotations

import io
import itertools
import threading
import zipfile
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any

import pytest

from inset.api import ConfigError, MediaConfig, MediaConnector, MediaFetchError, MediaPolicyError, TooLargeError
from inset.media.fetcher import MediaFetcher
from inset.media.http import HttpConnector
from inset.testing.conformance.connector import Bench, ConnectorConformance, ConnectorSource
from inset.testing.media_io import EncodedBytesIO
from inset.testing.media_server import MediaServer, Reply
from inset.testing.waiting import wait_until_waiting
from inset.testing.watched_connector import watch
from inset_connectors.archive import ArchiveConnector
from inset_connectors.cached import CachedConnector

MakeFetcher = Callable[..., MediaFetcher]

PICTURE = bytes(range(256)) * 40


class CachedSource(ConnectorSource):
    """Caches what comes from an HTTP server."""

    def __init__(self, server: MediaServer) -> None:
        self._server = server
        self._numbers = itertools.count()

    def make_connector(self) -> MediaConnector:
        return CachedConnector()

    def publish(self, data: bytes) -> str:
        return "cached+" + self._server.serve(f"/item-{next(self._numbers)}", data)

    def publish_redirect(self, target: str) -> str:
        return "cached+" + self._server.serve(f"/redirect-{next(self._numbers)}", Reply.redirect(target))

    def make_missing_url(self) -> str:
        return f"cached+http://127.0.0.1:{self._server.port}/b0a7c0de"

    def get_config_options(self) -> Mapping[str, Any]:
        return {"allow_private_media_hosts": ("127.0.0.1",)}


class TestConformance(ConnectorConformance):
    @pytest.fixture
    def source(self, media_server: MediaServer) -> CachedSource:
        return CachedSource(media_server)

    @contextmanager
    def make_bench(self, source: ConnectorSource, **options: Any) -> Iterator[Bench]:
        connector = watch(source.make_connector())
        with MediaFetcher([connector, HttpConnector()], MediaConfig(**{**source.get_config_options(), **options})) as fetcher:
            yield Bench(fetcher, connector)


def fetch(fetcher: MediaFetcher, url: str, **options: Any) -> bytes:
    return fetcher.fetch_image(f"cached+{url}", EncodedBytesIO(**options)).data


def test_bytes_are_fetched_once_while_they_are_fresh(make_fetcher: MakeFetcher, media_server: MediaServer) -> None:
    url = media_server.serve("/item", PICTURE, b"another")
    fetcher = make_fetcher(CachedConnector(age_seconds=3600))
    assert [fetch(fetcher, url) for _ in range(3)] == [PICTURE] * 3
    assert media_server.count("/item") == 1


def test_a_redirect_that_leads_elsewhere_by_now_gives_what_lies_there(make_fetcher: MakeFetcher, media_server: MediaServer) -> None:
    unchanged, headers = Reply(status=304), {"Last-Modified": "Sun, 29 Nov 2026 10:00:00 GMT"}
    targets = [
        media_server.serve(path, Reply(body=body, headers=headers), unchanged) for path, body in (("/a", PICTURE), ("/b", b"another"))
    ]
    url = media_server.serve("/latest", *(Reply.redirect(target) for target in (targets[0], *targets)))
    fetcher = make_fetcher(CachedConnector(age_seconds=0))
    assert [fetch(fetcher, url) for _ in range(3)] == [PICTURE, PICTURE, b"another"]


def test_bytes_that_are_not_fresh_are_asked_for_again(make_fetcher: MakeFetcher, media_server: MediaServer) -> None:
    url = media_server.serve("/item", PICTURE, b"another")
    fetcher = make_fetcher(CachedConnector(age_seconds=0))
    assert [fetch(fetcher, url) for _ in range(2)] == [PICTURE, b"another"]


@pytest.mark.parametrize(
    ("header", "value", "asked"),
    [("ETag", '"1"', "if-none-match"), ("Last-Modified", "Sun, 29 Nov 2026 10:00:00 GMT", "if-modified-since")],
)
def test_bytes_that_are_unchanged_are_not_sent_again(
    make_fetcher: MakeFetcher, media_server: MediaServer, header: str, value: str, asked: str
) -> None:
    headers = {header: value}
    url = media_server.serve("/item", Reply(body=PICTURE, headers=headers), Reply(status=304), Reply(body=b"another"))
    fetcher = make_fetcher(CachedConnector(age_seconds=0))
    assert [fetch(fetcher, url) for _ in range(3)] == [PICTURE, PICTURE, b"another"]
    assert [request.headers.get(asked) for request in media_server.requests] == [None, value, value]


def test_no_store_is_not_kept(make_fetcher: MakeFetcher, media_server: MediaServer) -> None:
    url = media_server.serve("/item", Reply(body=PICTURE, headers={"Cache-Control": "no-store"}), b"another")
    fetcher = make_fetcher(CachedConnector())
    assert [fetch(fetcher, url) for _ in range(2)] == [PICTURE, b"another"]


def test_failure_is_not_kept(make_fetcher: MakeFetcher, media_server: MediaServer) -> None:
    url = media_server.serve("/item", Reply(status=404), PICTURE)
    fetcher = make_fetcher(CachedConnector())
    with pytest.raises(MediaFetchError):
        fetch(fetcher, url)
    assert fetch(fetcher, url) == PICTURE


def test_what_was_used_longest_ago_goes_first(make_fetcher: MakeFetcher, media_server: MediaServer) -> None:
    paths = ["/a", "/b", "/c"]
    urls = [media_server.serve(path, bytes(10_000)) for path in paths]
    fetcher = make_fetcher(CachedConnector(max_bytes=25_000))
    for index in (0, 1, 0, 2, 0, 1):  # c pushes b out, and b then c
        fetch(fetcher, urls[index])
    assert [media_server.count(path) for path in paths] == [1, 2, 1]


def test_what_is_larger_than_the_cache_pushes_nothing_out(make_fetcher: MakeFetcher, media_server: MediaServer) -> None:
    small, large = media_server.serve("/small", bytes(10_000)), media_server.serve("/large", bytes(25_000))
    fetcher = make_fetcher(CachedConnector(max_bytes=25_000))
    for url in (small, large, large, small):
        fetch(fetcher, url)
    assert (media_server.count("/small"), media_server.count("/large")) == (1, 2)


def test_many_tiny_items_do_not_pile_up(make_fetcher: MakeFetcher, media_server: MediaServer) -> None:
    connector = CachedConnector(max_bytes=5000)
    fetcher = make_fetcher(connector)
    for number in range(20):
        fetch(fetcher, media_server.serve(f"/{number}", b"x"))
    assert 5 <= len(connector._entries) <= 9


def test_caps_and_host_list_hold_for_what_is_kept(make_fetcher: MakeFetcher, media_server: MediaServer) -> None:
    url = media_server.serve("/item", PICTURE)
    fetcher = make_fetcher(CachedConnector())
    fetch(fetcher, url)
    with pytest.raises(TooLargeError):
        fetch(fetcher, url, max_bytes=len(PICTURE) - 1)
    with pytest.raises(MediaPolicyError):
        fetch(make_fetcher(CachedConnector(), allowed_media_domains=("elsewhere.example",)), url)
    assert media_server.count("/item") == 1


def test_members_of_one_archive_share_one_download(make_fetcher: MakeFetcher, media_server: MediaServer) -> None:
    file, gate = io.BytesIO(), threading.Event()
    with zipfile.ZipFile(file, "w") as archive:
        for number in range(4):
            archive.writestr(f"{number}.png", bytes([number]) * 1000)
    url = media_server.serve("/archive", Reply(body=file.getvalue(), gate=gate))
    fetcher = make_fetcher(ArchiveConnector(), CachedConnector())
    with ThreadPoolExecutor(4) as pool:
        futures = [pool.submit(fetcher.fetch_image, f"zip+cached+{url}!/{number}.png", EncodedBytesIO()) for number in range(4)]
        wait_until_waiting(fetcher, 4)
        gate.set()
        assert [future.result(20).data[0] for future in futures] == [0, 1, 2, 3]
    assert media_server.count("/archive") == 1


@pytest.mark.parametrize("options", [{"max_bytes": -1}, {"age_seconds": -0.1}])
def test_negative_options_are_refused(options: Mapping[str, Any]) -> None:
    with pytest.raises(ConfigError, match="negative"):
        CachedConnector(**options)
