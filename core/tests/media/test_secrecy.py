"""Whatever fails, and wherever: no message and no log line shows what a URL or a path kept to itself."""

from __future__ import annotations

import base64
import logging
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from inset.config import MediaConfig
from inset.errors import ClientError
from inset.media.data_url import DataUrlConnector
from inset.media.fetcher import MediaFetcher
from inset.media.http import HttpConnector
from inset.media.image import ImageIO
from inset.media.local import FileConnector
from inset.testing.media_server import MediaServer, Reply
from inset.testing.sample_images import encode_image, make_pixels

SECRET = "s3cr3t"
DAMAGED = encode_image(make_pixels(200, 200), "PNG")[:-300]
BODIES = {"no media": b"<!doctype html><title>Sign in</title>", "empty": b"", "damaged": DAMAGED, "too large": bytes(200_000)}
Publish = Callable[[bytes], str]


@pytest.fixture
def fetcher(tmp_path: Path) -> Iterator[MediaFetcher]:
    config = MediaConfig(
        allow_private_media_hosts=("127.0.0.1",), allowed_local_media_path=tmp_path / "allowed", max_item_download_bytes=100_000
    )
    (tmp_path / "allowed").mkdir()
    with MediaFetcher([HttpConnector(), FileConnector(), DataUrlConnector()], config) as fetcher:
        yield fetcher


@pytest.fixture
def publish(media_server: MediaServer, tmp_path: Path) -> dict[str, Publish]:
    """Scheme -> gives bytes a URL that carries secrets."""

    def on_disk(data: bytes) -> str:
        path = tmp_path / "allowed" / f"{SECRET}.png"
        path.write_bytes(data)
        return f"file://{path}?{SECRET}"

    return {
        "http": lambda data: media_server.serve(f"/{SECRET}", data) + f"?signature={SECRET}#{SECRET}",
        "file": on_disk,
        "data": lambda data: f"data:image/png;name={SECRET};base64," + base64.b64encode(data).decode(),
    }


def assert_silent(error: ClientError, url: str, caplog: pytest.LogCaptureFixture) -> None:
    said = [str(error), repr(error), error.message, *(record.getMessage() for record in caplog.records)]
    said += [str(record.exc_info) + str(record.args) for record in caplog.records]
    hidden = [SECRET, "allowed/", url.rpartition("base64,")[2][:16] if url.startswith("data:") else SECRET]
    assert not [text for text in said for secret in hidden if secret and secret in text]


@pytest.mark.parametrize("scheme", ["http", "file", "data"])
@pytest.mark.parametrize("what", BODIES)
def test_no_failure_shows_more_than_scheme_and_host(
    fetcher: MediaFetcher, publish: dict[str, Publish], caplog: pytest.LogCaptureFixture, scheme: str, what: str
) -> None:
    caplog.set_level(logging.DEBUG)
    url = publish[scheme](BODIES[what])
    with pytest.raises(ClientError) as caught:
        fetcher.fetch_image(url, ImageIO({}, MediaConfig())).decode()
    assert_silent(caught.value, url, caplog)


@pytest.mark.parametrize(
    "url",
    [
        f"http://{SECRET}:{SECRET}@127.0.0.1/",
        f"http://127.0.0.1:1/{SECRET}?{SECRET}",
        f"http://10.0.0.1/{SECRET}",
        f"http://127.1/{SECRET}",
        f"https://127.0.0.1:1/{SECRET}",
        f"file:///{SECRET}",
        f"file:///etc/../{SECRET}",
        f"ftp://{SECRET}@example.com/{SECRET}",
        f"data:image/png,{SECRET}",
        f"data:image/png;base64,{SECRET}*{SECRET}",
        f"data:video/jpeg;base64,{SECRET}",
        f"{SECRET}",
        f"http:\\\\{SECRET}",
        f"http://exa mple/{SECRET}",
    ],
)
def test_no_refusal_shows_what_it_refused(fetcher: MediaFetcher, caplog: pytest.LogCaptureFixture, url: str) -> None:
    caplog.set_level(logging.DEBUG)
    with pytest.raises(ClientError) as caught:
        fetcher.fetch_image(url, ImageIO({}, MediaConfig()))
    assert_silent(caught.value, url, caplog)


def test_a_redirect_shows_neither_of_its_ends(fetcher: MediaFetcher, media_server: MediaServer, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    for target in (f"http://10.0.0.1/{SECRET}", f"http://{SECRET}@127.0.0.1/", f"/{SECRET}/missing?{SECRET}", f"file:///{SECRET}"):
        url = media_server.serve(f"/{SECRET}", Reply.redirect(target)) + f"?{SECRET}"
        with pytest.raises(ClientError) as caught:
            fetcher.fetch_image(url, ImageIO({}, MediaConfig()))
        assert_silent(caught.value, url, caplog)
