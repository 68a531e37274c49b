from __future__ import annotations

import hashlib
import itertools
import logging
import random
import sys
import threading
import zipfile
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import quote

import boto3
import pytest
from moto.server import ThreadedMotoServer
from obstore.fsspec import register

from inset.api import ConfigError, MediaConnector, MediaFetchError, MediaPolicyError, MediaTimeoutError, MissingExtraError
from inset.media.fetcher import MediaFetcher
from inset.testing.conformance.connector import ConnectorConformance, ConnectorSource
from inset.testing.media_io import EncodedBytesIO
from inset.testing.media_server import MediaServer, Reply
from inset_connectors.archive import ArchiveConnector
from inset_connectors.filesystem import FilesystemConnector
from inset_connectors.object_store import AzureConnector, GoogleConnector, ObjectStoreConnector, S3Connector

MakeFetcher = Callable[..., MediaFetcher]

PICTURE = bytes(range(256)) * 40
S3_CONFIG = {"region": "us-east-1", "access_key_id": "me", "secret_access_key": "mine"}
STORE_HEADERS = {"Last-Modified": "Sun, 29 Nov 2026 10:00:00 GMT", "ETag": '"one"'}


# S3


class S3Server:
    """An S3 server on the loopback interface with a bucket of pictures."""

    def __init__(self, endpoint: str) -> None:
        self.endpoint = endpoint
        self._client = boto3.client(
            "s3", endpoint_url=endpoint, region_name="us-east-1", aws_access_key_id="me", aws_secret_access_key="mine"
        )
        for bucket in ("birds", "private"):
            self._client.create_bucket(Bucket=bucket)

    def put(self, key: str, data: bytes, *, bucket: str = "birds", acl: str = "private") -> str:
        self._client.put_object(Bucket=bucket, Key=key, Body=data, ACL=acl)
        return f"s3://{bucket}/{quote(key)}"

    def make_connector(self, **options: Any) -> S3Connector:
        return S3Connector(**{"buckets": ["birds"], "endpoint": self.endpoint, "config": S3_CONFIG, **options})

    def presign(self, key: str) -> str:
        url: str = self._client.generate_presigned_url("get_object", Params={"Bucket": "birds", "Key": key})
        return url


@pytest.fixture(scope="session")
def s3_server() -> Iterator[S3Server]:
    logging.getLogger("werkzeug").setLevel(logging.ERROR)
    server = ThreadedMotoServer("127.0.0.1", 0, verbose=False)
    server.start()
    try:
        host, port = server.get_host_and_port()
        yield S3Server(f"http://{host}:{port}")
    finally:
        server.stop()


class S3Source(ConnectorSource):
    def __init__(self, server: S3Server) -> None:
        self._server = server
        self._numbers = itertools.count()

    def make_connector(self) -> MediaConnector:
        return self._server.make_connector()

    def publish(self, data: bytes) -> str:
        return self._server.put(f"some folder/{next(self._numbers)} ü?.png", data)

    def make_missing_url(self) -> str:
        return "s3://birds/b0a7c0de"


class TestS3Conformance(ConnectorConformance):
    @pytest.fixture
    def source(self, s3_server: S3Server) -> S3Source:
        return S3Source(s3_server)


def fetch(fetcher: MediaFetcher, url: str, **options: Any) -> bytes:
    return fetcher.fetch_image(url, EncodedBytesIO(**options)).data


def test_public_objects_are_read_without_credentials_and_others_are_not(s3_server: S3Server, make_fetcher: MakeFetcher) -> None:
    fetcher = make_fetcher(s3_server.make_connector(anonymous=True, buckets=[], config={"region": "us-east-1"}))
    assert fetch(fetcher, s3_server.put("public.png", PICTURE, acl="public-read")) == PICTURE
    with pytest.raises(MediaFetchError, match="does not let this server read"):
        fetch(fetcher, s3_server.put("b0a7c0de.png", PICTURE))


def test_credentials_come_from_the_usual_environment(
    s3_server: S3Server, make_fetcher: MakeFetcher, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in S3_CONFIG.items():
        monkeypatch.setenv(f"AWS_{name.upper()}", value)
    fetcher = make_fetcher(s3_server.make_connector(config=None))
    assert fetch(fetcher, s3_server.put("own.png", PICTURE)) == PICTURE


def test_presigned_urls_need_no_connector_but_http(s3_server: S3Server, make_fetcher: MakeFetcher) -> None:
    s3_server.put("signed.png", PICTURE)
    assert fetch(make_fetcher(), s3_server.presign("signed.png")) == PICTURE


def test_members_of_archives_come_from_the_store(s3_server: S3Server, make_fetcher: MakeFetcher, tmp_path: Path) -> None:
    with zipfile.ZipFile(tmp_path / "a.zip", "w") as archive:
        archive.writestr("a.png", PICTURE)
    url = s3_server.put("a.zip", (tmp_path / "a.zip").read_bytes())
    assert fetch(make_fetcher(ArchiveConnector(), s3_server.make_connector()), f"zip+{url}!/a.png") == PICTURE


def test_asynchronous_client_of_fsspec_reads_the_same_store(s3_server: S3Server, make_fetcher: MakeFetcher) -> None:
    register("s3")
    options = {"config": {**S3_CONFIG, "endpoint": s3_server.endpoint}, "client_options": {"allow_http": True}}
    fetcher = make_fetcher(FilesystemConnector(protocols={"s3": options}))
    with ThreadPoolExecutor(4) as pool:
        urls = [s3_server.put(f"fsspec/{number}.png", PICTURE + bytes([number])) for number in range(8)]
        assert list(pool.map(lambda url: fetch(fetcher, f"fsspec+{url}")[-1], urls)) == list(range(8))
    with pytest.raises(MediaFetchError, match="no such file"):
        fetch(fetcher, "fsspec+s3://birds/missing.png")


def test_bucket_that_is_not_named_is_refused(s3_server: S3Server, make_fetcher: MakeFetcher) -> None:
    url = s3_server.put("own.png", PICTURE, bucket="private")
    with pytest.raises(MediaPolicyError, match="option buckets"):
        fetch(make_fetcher(s3_server.make_connector()), url)
    assert fetch(make_fetcher(s3_server.make_connector(buckets=["*"])), url) == PICTURE


@pytest.mark.parametrize(
    "url",
    [
        "s3://birds/",
        "s3://birds",
        "s3://birds//a.png",
        "s3://birds/a/../b.png",
        "s3://birds/%2e%2e/a.png",
        "s3://birds/a%00.png",
        "s3://birds:80/a.png",
        "s3://birds/a.png?versionId=1",
        "s3:a.png",
        "s3:///a.png",
    ],
)
def test_urls_that_name_no_object_are_refused(s3_server: S3Server, make_fetcher: MakeFetcher, url: str) -> None:
    with pytest.raises(MediaPolicyError):
        fetch(make_fetcher(s3_server.make_connector(buckets=["*"])), url)


def test_object_in_the_download_cache_is_asked_for_by_its_etag(s3_server: S3Server, make_fetcher: MakeFetcher, tmp_path: Path) -> None:
    fetcher = make_fetcher(s3_server.make_connector(), download_cache_dir=tmp_path)
    url = s3_server.put("kept.png", PICTURE)
    assert [fetch(fetcher, url) for _ in range(2)] == [PICTURE] * 2
    s3_server.put("kept.png", b"another")
    assert fetch(fetcher, url) == b"another"


# Google and Azure: a scripted server answers what their clients ask for


class ScriptedStore(ConnectorSource):
    """Objects of one bucket, at the paths where a store's client looks for them."""

    def __init__(self, server: MediaServer, connector_class: type[ObjectStoreConnector]) -> None:
        self._server = server
        self._connector_class = connector_class
        self._numbers = itertools.count()
        self._scheme = connector_class.schemes[0]
        self._config = {"account_name": "me"} if connector_class is AzureConnector else {}

    def make_connector(self) -> ObjectStoreConnector:
        endpoint = f"http://127.0.0.1:{self._server.port}"
        return self._connector_class(anonymous=True, endpoint=endpoint, config=self._config)

    def serve(self, key: str, *replies: Reply) -> str:
        """Answers requests for an object in turn, and returns its URL."""
        self._server.serve(self.path(key), *replies)
        return f"{self._scheme}://birds/{key}"

    def path(self, key: str) -> str:
        """Returns where the client looks for an object; Google's percent-encodes all but letters and numbers."""
        if self._connector_class is AzureConnector:
            return f"/birds/{key}"
        return "/birds/" + "".join(mark if mark.isalnum() else f"%{ord(mark):02X}" for mark in key)

    def publish(self, data: bytes) -> str:
        return self.serve(f"folder/{next(self._numbers)}.png", Reply(body=data, headers=STORE_HEADERS))

    def make_missing_url(self) -> str:
        return f"{self._scheme}://birds/b0a7c0de"


class TestGoogleConformance(ConnectorConformance):
    @pytest.fixture
    def source(self, media_server: MediaServer) -> ScriptedStore:
        return ScriptedStore(media_server, GoogleConnector)


class TestAzureConformance(ConnectorConformance):
    @pytest.fixture
    def source(self, media_server: MediaServer) -> ScriptedStore:
        return ScriptedStore(media_server, AzureConnector)


@pytest.fixture(params=[GoogleConnector, AzureConnector])
def store(request: pytest.FixtureRequest, media_server: MediaServer) -> ScriptedStore:
    return ScriptedStore(media_server, request.param)


def test_error_of_the_store_is_tried_again(store: ScriptedStore, make_fetcher: MakeFetcher) -> None:
    url = store.serve("a.png", Reply(status=503), Reply(status=500), Reply(body=PICTURE, headers=STORE_HEADERS))
    assert fetch(make_fetcher(store.make_connector()), url) == PICTURE


def test_store_that_cannot_be_reached_is_an_error_without_secrets(make_fetcher: MakeFetcher) -> None:
    connector = GoogleConnector(anonymous=True, endpoint="http://127.0.0.1:1")
    with pytest.raises(MediaFetchError, match="could not be read") as caught:
        fetch(make_fetcher(connector), "gs://birds/b0a7c0de.png")
    assert "b0a7c0de" not in str(caught.value)


def test_fetch_that_is_given_up_hangs_up(media_server: MediaServer, store: ScriptedStore, make_fetcher: MakeFetcher) -> None:
    url = store.serve("a.png", Reply(body=PICTURE, content_length=str(len(PICTURE) + 1), headers=STORE_HEADERS, is_stalled=True))
    short = {"image_fetch_timeout_seconds": 0.1, "max_fetch_attempts": 1}
    with pytest.raises(MediaTimeoutError):
        fetch(make_fetcher(store.make_connector(), **short), url)
    media_server.wait_until_idle()


# Ranges


class BreakingStore(ThreadingHTTPServer):
    """Serves one object in the way of Google's store, and hangs up after so many bytes each time.

    Attributes:
        contents: What the object is at each request, the last one from then on.
        seen: Range and If-Match of each request.
    """

    daemon_threads = True

    def __init__(self, *contents: bytes, num_bytes: int) -> None:
        super().__init__(("127.0.0.1", 0), BreakingHandler)
        self.contents = list(contents)
        self.num_bytes = num_bytes
        self.seen: list[tuple[str | None, str | None]] = []


class BreakingHandler(BaseHTTPRequestHandler):
    server: BreakingStore

    def do_GET(self) -> None:  # the name is the base class's
        data = self.server.contents.pop(0) if len(self.server.contents) > 1 else self.server.contents[0]
        etag = f'"{hashlib.sha256(data).hexdigest()}"'
        wanted, expected = self.headers["Range"], self.headers["If-Match"]
        self.server.seen.append((wanted, expected))
        start = int(wanted.removeprefix("bytes=").removesuffix("-")) if wanted else 0
        is_other = expected not in (None, etag)
        self.send_response(412 if is_other else 206 if wanted else 200)
        self.send_header("Content-Length", "0" if is_other else str(len(data) - start))
        self.send_header("ETag", etag)
        self.send_header("Last-Modified", "Sun, 29 Nov 2026 10:00:00 GMT")
        if wanted:
            self.send_header("Content-Range", f"bytes {start}-{len(data) - 1}/{len(data)}")
        self.end_headers()
        if not is_other:
            self.wfile.write(data[start : start + self.server.num_bytes])

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002  # the name is the base class's
        """Nothing."""


@contextmanager
def breaking_store(*contents: bytes, num_bytes: int) -> Iterator[tuple[BreakingStore, GoogleConnector]]:
    with BreakingStore(*contents, num_bytes=num_bytes) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        try:
            yield server, GoogleConnector(anonymous=True, endpoint=f"http://127.0.0.1:{server.server_port}")
        finally:
            server.shutdown()
            thread.join(20)


def test_broken_answer_goes_on_with_a_range_from_where_it_broke(make_fetcher: MakeFetcher) -> None:
    data = random.Random(0).randbytes(5_000_000)
    with breaking_store(data, num_bytes=3_000_000) as (server, connector):
        assert fetch(make_fetcher(connector, max_fetch_attempts=1), "gs://birds/a.png") == data
    (first, *others) = server.seen
    assert first == (None, None)
    assert 1 <= len(others) <= 2
    assert all(wanted is not None and expected == f'"{hashlib.sha256(data).hexdigest()}"' for wanted, expected in others)


def test_object_that_changes_in_between_is_read_anew(make_fetcher: MakeFetcher) -> None:
    before, after = (random.Random(seed).randbytes(3_000_000) for seed in range(2))
    with breaking_store(before, after, num_bytes=2_900_000) as (server, connector):
        assert fetch(make_fetcher(connector), "gs://birds/a.png") == after
    assert [wanted is not None for wanted, _ in server.seen] == [False, True, False, True]


def test_answer_that_breaks_before_its_first_byte_is_not_tried_for_ever(make_fetcher: MakeFetcher) -> None:
    with breaking_store(PICTURE, num_bytes=0) as (server, connector), pytest.raises(MediaFetchError, match="Tried 3 times"):
        fetch(make_fetcher(connector), "gs://birds/a.png")
    assert len(server.seen) == 3


# Options


@pytest.mark.parametrize("connector_class", [S3Connector, GoogleConnector, AzureConnector])
def test_missing_client_is_said_with_the_extra_that_brings_it(
    connector_class: type[ObjectStoreConnector], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "obstore", None)
    with pytest.raises(MissingExtraError, match=rf"pip install 'inset-connectors\[{connector_class.extra}\]'"):
        connector_class(anonymous=True)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({}, "needs the option buckets"),
        ({"buckets": "birds"}, "needs the option buckets"),
        ({"anonymous": True, "config": {"nonsense": "1"}}, "does not take these"),
    ],
)
def test_options_that_do_not_fit_are_said_at_start(options: dict[str, Any], words: str) -> None:
    with pytest.raises(ConfigError, match=words):
        S3Connector(**options)


def test_connections_of_few_buckets_stay_open(
    media_server: MediaServer, make_fetcher: MakeFetcher, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("inset_connectors.object_store.MAX_STORES", 2)
    connector = GoogleConnector(anonymous=True, endpoint=f"http://127.0.0.1:{media_server.port}")
    fetcher = make_fetcher(connector)
    for bucket in ("first", "second", "first", "third"):
        media_server.serve(f"/{bucket}/a", Reply(body=PICTURE, headers=STORE_HEADERS))
        assert fetch(fetcher, f"gs://{bucket}/a") == PICTURE
    assert list(connector._stores) == ["first", "third"]
