from __future__ import annotations

import base64
import io
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

import inset
from inset.config import MediaConfig
from inset.errors import MediaDecodeError, MediaPolicyError
from inset.media.data_url import DataUrlConnector
from inset.media.fetcher import MediaFetcher
from inset.media.http import HttpConnector
from inset.testing.media_server import MediaServer, Reply


def make_png(colour: tuple[int, int, int]) -> bytes:
    file = io.BytesIO()
    Image.new("RGB", (4, 3), colour).save(file, "PNG")
    return file.getvalue()


@pytest.fixture
def fetcher(tmp_path: Path) -> Iterator[MediaFetcher]:
    config = MediaConfig(allow_private_media_hosts=("127.0.0.1",), download_cache_dir=tmp_path)
    with MediaFetcher([DataUrlConnector(), HttpConnector()], config) as fetcher:
        yield fetcher


def test_image_is_fetched_and_decoded_in_one_call(fetcher: MediaFetcher, media_server: MediaServer) -> None:
    pixels = inset.fetch_image(media_server.serve("/a", make_png((1, 2, 3))), fetcher=fetcher)
    np.testing.assert_array_equal(pixels, np.full((3, 4, 3), (1, 2, 3), np.uint8))


def test_page_is_not_an_image_and_is_not_kept(fetcher: MediaFetcher, media_server: MediaServer) -> None:
    url = media_server.serve("/a", Reply(body=b"<!doctype html><p>Sign in", headers={"Content-Type": "image/png"}), make_png((9, 9, 9)))
    with pytest.raises(MediaDecodeError) as caught:
        inset.fetch_image(url, fetcher=fetcher)
    assert (caught.value.status, caught.value.modality, caught.value.stage) == (422, "image", "probe")
    assert inset.fetch_image(url, fetcher=fetcher).shape == (3, 4, 3)


def test_image_that_fails_to_decode_is_not_kept(fetcher: MediaFetcher, media_server: MediaServer) -> None:
    good = make_png((9, 9, 9))
    url = media_server.serve("/a", good[:-25], good)
    with pytest.raises(MediaDecodeError):
        inset.fetch_image(url, fetcher=fetcher)
    assert inset.fetch_image(url, fetcher=fetcher).shape == (3, 4, 3)


def test_without_a_fetcher_the_environment_decides() -> None:
    url = "data:image/png;base64," + base64.b64encode(make_png((5, 6, 7))).decode()
    code = f"""
import sys, inset
from inset.errors import MediaPolicyError
assert inset.fetch_image({url!r}).tolist() == [[[5, 6, 7]] * 4] * 3
try:
    inset.fetch_image("http://other.example/")
except MediaPolicyError as error:
    assert "--allowed-media-domains" in str(error)
else:
    raise SystemExit("not refused")
assert "torch" not in sys.modules and "transformers" not in sys.modules
"""
    environment = {"INSET_ALLOWED_MEDIA_DOMAINS": "example.com", "PATH": "/usr/bin"}
    subprocess.run([sys.executable, "-W", "error", "-c", code], check=True, timeout=60, env=environment)


def test_local_files_are_off_by_default(fetcher: MediaFetcher) -> None:
    with pytest.raises(MediaPolicyError, match="--allowed-local-media-path"):
        inset.fetch_image("file:///etc/hostname", fetcher=fetcher)


def test_name_that_inset_does_not_have_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="fetch_smell"):
        inset.fetch_smell  # noqa: B018
