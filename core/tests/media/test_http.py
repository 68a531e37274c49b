from __future__ import annotations

import asyncio
import gzip
import itertools
import socketserver
import threading
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from typing import Any

import pytest

from inset.config import MediaConfig
from inset.errors import ClientError, MediaDecodeError, MediaFetchError, MediaPolicyError, MediaTimeoutError, TooLargeError
from inset.media.connector import MediaConnector
from inset.media.data_url import DataUrlConnector
from inset.media.fetcher import MediaFetcher
from inset.media.http import HttpConnector
from inset.testing.conformance.connector import ConnectorConformance, ConnectorSource, make_budget
from inset.testing.media_io import EncodedBytesIO
from inset.testing.media_server import MediaServer, Reply
from inset.testing.waiting import wait_until_waiting

WAIT_SECONDS = 20.0


class HttpSource(ConnectorSource):
    def __init__(self, server: MediaServer) -> None:
        self._server = server
        self._numbers = itertools.count()

    def make_connector(self) -> MediaConnector:
        return HttpConnector()

    def publish(self, data: bytes) -> str:
        return self._server.serve(f"/item-{next(self._numbers)}", data)

    def make_missing_url(self) -> str:
        return f"http://127.0.0.1:{self._server.port}/b0a7c0de?signature=b0a7c0de"

    def publish_redirect(self, target: str) -> str:
        return self._server.serve(f"/redirect-{next(self._numbers)}", Reply.redirect(target))

    def get_config_options(self) -> Mapping[str, Any]:
        return {"allow_private_media_hosts": ("127.0.0.1",)}


class TestConformance(ConnectorConformance):
    @pytest.fixture
    def source(self, media_server: MediaServer) -> HttpSource:
        return HttpSource(media_server)


PICTURE = b"\x89PNG" + bytes(range(256)) * 100


@pytest.fixture
def fetcher() -> Iterator[MediaFetcher]:
    with make_fetcher() as fetcher:
        yield fetcher


def make_fetcher(**options: Any) -> MediaFetcher:
    config = MediaConfig(**{"allow_private_media_hosts": ("127.0.0.1",), "max_item_download_bytes": 1_000_000, **options})
    return MediaFetcher([HttpConnector(), DataUrlConnector()], config)


# Status and body


@pytest.mark.parametrize(
    ("reply", "error_class", "words"),
    [
        (Reply(status=204), MediaFetchError, "answered 204"),
        (Reply(status=206, body=b"part"), MediaFetchError, "answered 206"),
        (Reply(status=304), MediaFetchError, "answered 304"),
        (Reply(status=400), MediaFetchError, "answered 400"),
        (Reply(status=401), MediaFetchError, "answered 401"),
        (Reply(status=403), MediaFetchError, "answered 403"),
        (Reply(status=404), MediaFetchError, "answered 404"),
        (Reply(status=410), MediaFetchError, "answered 410"),
        (Reply(body=b""), MediaFetchError, "empty"),
        (Reply(body=PICTURE, content_length="-5"), MediaFetchError, "not valid HTTP"),
        (Reply(body=PICTURE, content_length="many"), MediaFetchError, "not valid HTTP"),
        (Reply(body=PICTURE, content_length="9" * 30), MediaFetchError, "not valid HTTP"),
        (Reply(body=PICTURE, content_length="1000001"), TooLargeError, "1000001"),
        (Reply(is_endless=True, content_length=None), TooLargeError, "1000000"),
        (Reply(raw=b"SSH-2.0-OpenSSH_9.6\r\n"), MediaFetchError, "not valid HTTP"),
        (Reply(body=PICTURE, headers={"Content-Encoding": "br"}), MediaFetchError, "content encoding"),
        (Reply(body=PICTURE, headers={"Content-Encoding": "gzip"}), MediaFetchError, "not valid gzip"),
        (Reply.gzipped(bytes(1_000_001)), TooLargeError, "1000000"),
        (Reply.redirect(None), MediaFetchError, "without a place"),
        (Reply.redirect("/reply?again"), MediaFetchError, "more than 10 redirects"),
        (Reply.redirect("ftp://example.com/"), MediaPolicyError, "only http: and https:"),
        (Reply(body=b"<!doctype html><title>Sign in</title>"), MediaDecodeError, "a page"),
    ],
)
def test_answer_that_is_no_media_is_an_error_at_once(
    fetcher: MediaFetcher, media_server: MediaServer, reply: Reply, error_class: type[ClientError], words: str
) -> None:
    url = media_server.serve("/reply", reply) + "?signature=s3cr3t"
    with pytest.raises(error_class, match=words) as caught:
        fetcher.fetch_image(url, EncodedBytesIO())
    assert caught.value.modality == "image"
    assert "s3cr3t" not in str(caught.value)
    assert media_server.count("/reply") == (11 if "redirects" in words else 1), "it is not tried again"


@pytest.mark.parametrize(
    "failure",
    [
        Reply(status=408),
        Reply(status=429),
        Reply(status=500),
        Reply(status=502),
        Reply(status=503, headers={"Retry-After": "0"}),
        Reply(status=503, headers={"Retry-After": "Wed, 21 Oct 2015 07:28:00 GMT"}),
        Reply(status=503, headers={"Retry-After": "soon"}),
        Reply.hang_up(),
        Reply.cut_short(PICTURE, num_bytes=100),
        Reply.gzipped(PICTURE, keep_bytes=40),
        Reply(raw=b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhel"),
        Reply(body=PICTURE[:100], content_length=str(len(PICTURE)), is_stalled=True),
        Reply(is_stalled=True, content_length=str(len(PICTURE))),
    ],
)
def test_failure_that_may_pass_is_tried_again_and_counts_once(media_server: MediaServer, failure: Reply) -> None:
    budget = make_budget(len(PICTURE))
    with make_fetcher(image_fetch_timeout_seconds=0.5) as fetcher:
        ref = fetcher.fetch_image(media_server.serve("/flaky", failure, PICTURE), EncodedBytesIO(), budget=budget)
    assert ref.data == PICTURE
    assert media_server.count("/flaky") == 2
    assert budget.downloaded_bytes == len(PICTURE)


def test_short_body_is_never_a_truncated_picture(fetcher: MediaFetcher, media_server: MediaServer) -> None:
    url = media_server.serve("/short", Reply.cut_short(PICTURE, num_bytes=len(PICTURE) - 1))
    with pytest.raises(MediaFetchError, match="Tried 3 times"):
        fetcher.fetch_image(url, EncodedBytesIO())


def test_body_beyond_content_length_is_never_read(fetcher: MediaFetcher, media_server: MediaServer) -> None:
    """It depends on how the bytes are packed whether the rest is seen in time; either way it reaches no later answer."""
    url = media_server.serve("/long", Reply(body=PICTURE, content_length="10"))
    for _ in range(5):
        with suppress(MediaFetchError):
            assert fetcher.fetch_image(url, EncodedBytesIO()).data == PICTURE[:10]
        assert fetcher.fetch_image(media_server.serve("/good", b"good"), EncodedBytesIO()).data == b"good"


def test_body_without_content_length_ends_with_the_connection(fetcher: MediaFetcher, media_server: MediaServer) -> None:
    url = media_server.serve("/open", Reply(body=PICTURE, content_length=None))
    assert fetcher.fetch_image(url, EncodedBytesIO()).data == PICTURE


def test_gzipped_body_counts_unpacked(fetcher: MediaFetcher, media_server: MediaServer) -> None:
    body = bytes(500_000)
    budget = make_budget(len(body))
    url = media_server.serve("/packed", Reply.gzipped(body))
    assert fetcher.fetch_image(url, EncodedBytesIO(), budget=budget).data == body
    assert budget.downloaded_bytes == len(body)


def test_gzip_members_in_a_row_are_one_body(fetcher: MediaFetcher, media_server: MediaServer) -> None:
    packed = Reply(body=gzip.compress(b"one ") + gzip.compress(b"two"), headers={"Content-Encoding": "x-gzip"})
    assert fetcher.fetch_image(media_server.serve("/members", packed), EncodedBytesIO()).data == b"one two"


def test_slow_drip_ends_with_the_deadline(media_server: MediaServer) -> None:
    drip = Reply(body=PICTURE, piece_bytes=1, pause_seconds=0.02)
    with make_fetcher(image_fetch_timeout_seconds=0.1, image_fetch_deadline_seconds=0.4) as fetcher:
        with pytest.raises(MediaTimeoutError) as caught:
            fetcher.fetch_image(media_server.serve("/drip", drip), EncodedBytesIO())
        assert caught.value.code == "media_timeout"
        media_server.wait_until_idle()


def test_retry_after_beyond_the_deadline_is_not_waited_for(media_server: MediaServer) -> None:
    url = media_server.serve("/later", Reply(status=429, headers={"Retry-After": "3600"}), PICTURE)
    with make_fetcher() as fetcher, pytest.raises(MediaFetchError, match=r"answered 429.*Tried once"):
        fetcher.fetch_image(url, EncodedBytesIO())
    assert media_server.count("/later") == 1


def test_connection_closes_when_nobody_waits_any_more(fetcher: MediaFetcher, media_server: MediaServer) -> None:
    url = media_server.serve("/slow", Reply(body=b"x", content_length="100", is_stalled=True))

    async def leave() -> None:
        task = asyncio.create_task(fetcher.fetch_image_async(url, EncodedBytesIO()))
        await asyncio.to_thread(media_server.wait_for_requests, "/slow")
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)

    asyncio.run(leave())
    media_server.wait_until_idle()


def test_sixteen_callers_cause_one_request(fetcher: MediaFetcher, media_server: MediaServer) -> None:
    gate = threading.Event()
    url = media_server.serve("/shared", Reply(body=PICTURE, gate=gate))
    with ThreadPoolExecutor(16) as pool:
        futures = [pool.submit(fetcher.fetch_image, url, EncodedBytesIO()) for _ in range(16)]
        wait_until_waiting(fetcher, 16)
        gate.set()
        assert {future.result(30).data for future in futures} == {PICTURE}
    assert media_server.count("/shared") == 1


# Redirects


@pytest.mark.parametrize("status", [301, 302, 303, 307, 308])
def test_relative_redirects_are_followed(fetcher: MediaFetcher, media_server: MediaServer, status: int) -> None:
    media_server.serve("/folder/end", PICTURE)
    url = media_server.serve("/folder/start", Reply.redirect("middle?x=1", status=status))
    media_server.serve("/folder/middle", Reply.redirect("/folder/end", status=status))
    assert fetcher.fetch_image(url, EncodedBytesIO()).data == PICTURE


def test_ten_redirects_are_followed(fetcher: MediaFetcher, media_server: MediaServer) -> None:
    media_server.serve("/0", PICTURE)
    for number in range(1, 12):
        media_server.serve(f"/{number}", Reply.redirect(f"/{number - 1}"))
    assert fetcher.fetch_image(f"http://127.0.0.1:{media_server.port}/10", EncodedBytesIO()).data == PICTURE
    with pytest.raises(MediaFetchError, match="more than 10"):
        fetcher.fetch_image(f"http://127.0.0.1:{media_server.port}/11", EncodedBytesIO())


def test_redirects_can_be_switched_off(media_server: MediaServer) -> None:
    url = media_server.serve("/start", Reply.redirect("/end"))
    with make_fetcher(media_url_allow_redirects=False) as fetcher, pytest.raises(MediaPolicyError, match="--media-url-allow-redirects"):
        fetcher.fetch_image(url, EncodedBytesIO())
    assert media_server.count("/end") == 0


def test_redirect_to_a_host_that_is_not_allowed_is_refused(media_server: MediaServer) -> None:
    options: dict[str, Any] = {"allowed_media_domains": ("127.0.0.1",), "allow_private_media_hosts": ("127.0.0.1", "localhost")}
    end = media_server.serve("/end", PICTURE, host="localhost")
    with make_fetcher(**options) as fetcher, pytest.raises(MediaPolicyError, match="--allowed-media-domains"):
        fetcher.fetch_image(media_server.serve("/start", Reply.redirect(end)), EncodedBytesIO())
    assert media_server.count("/end") == 0


@pytest.mark.parametrize("target", ["http://localhost:{port}/end", "http://[::ffff:127.0.0.1]:{port}/end", "http://[::1]:{port}/end"])
def test_redirect_to_a_private_address_is_refused(fetcher: MediaFetcher, media_server: MediaServer, target: str) -> None:
    media_server.serve("/end", PICTURE)
    with pytest.raises(MediaPolicyError):
        fetcher.fetch_image(media_server.serve("/start", Reply.redirect(target.format(port=media_server.port))), EncodedBytesIO())
    assert media_server.count("/end") == 0


# The connection and the request


def test_server_without_tls_is_a_fetch_error_at_once(fetcher: MediaFetcher) -> None:
    num_greeted = 0

    class PlainHandler(socketserver.BaseRequestHandler):
        def handle(self) -> None:
            nonlocal num_greeted
            num_greeted += 1
            self.request.recv(1000)
            self.request.sendall(b"HTTP/1.1 400 Bad Request\r\n\r\n")

    with socketserver.ThreadingTCPServer(("127.0.0.1", 0), PlainHandler) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        try:
            with pytest.raises(MediaFetchError, match="no trusted TLS connection"):
                fetcher.fetch_image(f"https://127.0.0.1:{server.server_address[1]}/", EncodedBytesIO())
        finally:
            server.shutdown()
            thread.join(20)
    assert num_greeted == 1


def test_proxy_of_the_environment_is_not_used(fetcher: MediaFetcher, media_server: MediaServer, monkeypatch: pytest.MonkeyPatch) -> None:
    url = media_server.serve("/direct", PICTURE)
    with MediaServer() as proxy:
        for name in ("http_proxy", "HTTP_PROXY", "all_proxy"):
            monkeypatch.setenv(name, f"http://127.0.0.1:{proxy.port}")
        monkeypatch.setenv("no_proxy", "")
        assert fetcher.fetch_image(url, EncodedBytesIO()).data == PICTURE
        assert proxy.requests == []


def test_cookies_are_neither_kept_nor_sent(fetcher: MediaFetcher, media_server: MediaServer) -> None:
    url = media_server.serve("/cookie", Reply(body=PICTURE, headers={"Set-Cookie": "session=1"}))
    for _ in range(2):
        fetcher.fetch_image(url, EncodedBytesIO())
    assert all("cookie" not in request.headers for request in media_server.requests)


def test_path_and_query_arrive_as_they_were_written(fetcher: MediaFetcher, media_server: MediaServer) -> None:
    media_server.serve("/a%2Fb", PICTURE)
    fetcher.fetch_image(f"http://127.0.0.1:{media_server.port}/a%2Fb?X-Signature=a%2fb%7E+c==&d#fragment", EncodedBytesIO())
    assert media_server.requests[0].path == "/a%2Fb?X-Signature=a%2fb%7E+c==&d"


def test_nothing_is_logged_about_what_fails(fetcher: MediaFetcher, media_server: MediaServer, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("DEBUG")
    for reply in (Reply(status=404), Reply.hang_up(), Reply(body=PICTURE, content_length="-1")):
        with pytest.raises(MediaFetchError):
            fetcher.fetch_image(media_server.serve("/p4th", reply) + "?signature=s3cr3t", EncodedBytesIO())
    assert not any(secret in record.getMessage() for record in caplog.records for secret in ("s3cr3t", "p4th"))
