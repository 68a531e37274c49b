from __future__ import annotations

import itertools
import os
import socket
import threading
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from inset.config import MediaConfig
from inset.errors import ClientError, MediaFetchError, MediaPolicyError, TooLargeError
from inset.media.connector import MediaConnector
from inset.media.fetcher import MediaFetcher
from inset.media.local import FileConnector
from inset.testing.conformance.connector import ConnectorConformance, ConnectorSource
from inset.testing.media_io import EncodedBytesIO


class FileSource(ConnectorSource):
    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._numbers = itertools.count()

    def make_connector(self) -> MediaConnector:
        return FileConnector()

    def publish(self, data: bytes) -> str:
        path = self._folder / f"item {next(self._numbers)}.bin"
        path.write_bytes(data)
        return path.as_uri()

    def make_missing_url(self) -> str:
        return (self._folder / "b0a7c0de").as_uri()

    def get_config_options(self) -> Mapping[str, Any]:
        return {"allowed_local_media_path": self._folder}


class TestConformance(ConnectorConformance):
    @pytest.fixture
    def source(self, tmp_path: Path) -> FileSource:
        return FileSource(tmp_path)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """The allowed folder, with a picture, and beside it what must never be read."""
    (tmp_path / "allowed" / "inner").mkdir(parents=True)
    (tmp_path / "allowed-too").mkdir()
    for path in ("allowed/a.png", "allowed/inner/b.png", "secret.png", "allowed-too/c.png"):
        (tmp_path / path).write_bytes(path.encode())
    return tmp_path / "allowed"


def make_fetcher(folder: Path | None, **options: Any) -> MediaFetcher:
    return MediaFetcher([FileConnector()], MediaConfig(allowed_local_media_path=folder, **options))


def read(folder: Path | None, url: str) -> bytes:
    with make_fetcher(folder) as fetcher:
        return fetcher.fetch_image(url, EncodedBytesIO()).data


@pytest.mark.parametrize("path", ["a.png", "inner/b.png", "./a.png", "inner//b.png", "%61.png"])
@pytest.mark.parametrize("prefix", ["file://", "file://localhost", "FILE://LOCALHOST", "file:"])
def test_files_under_the_folder_are_read(folder: Path, prefix: str, path: str) -> None:
    assert read(folder, f"{prefix}{folder}/{path}").endswith(b".png")


def test_query_and_fragment_are_no_part_of_the_path(folder: Path) -> None:
    assert read(folder, f"file://{folder}/a.png?x=1#y") == b"allowed/a.png"


def test_folder_may_itself_be_reached_over_a_link(folder: Path, tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to(folder)
    assert read(tmp_path / "link", f"file://{tmp_path}/link/a.png") == b"allowed/a.png"
    assert read(tmp_path / "link", f"file://{folder}/a.png") == b"allowed/a.png"


def test_without_the_option_the_message_says_which_one(folder: Path) -> None:
    with pytest.raises(MediaPolicyError, match=r"^Cannot load local files without --allowed-local-media-path\.$"):
        read(None, f"file://{folder}/a.png")


@pytest.mark.parametrize(
    "url",
    [
        "file://{folder}/../secret.png",
        "file://{folder}/inner/../../secret.png",
        "file://{folder}/inner/../a.png",
        "file://{folder}/%2e%2e/secret.png",
        "file://{folder}/.%2E/secret.png",
        "file://{folder}/inner%2f..%2f..%2fsecret.png",
        "file://{folder}-too/c.png",
        "file://{folder}/../allowed-too/c.png",
        "file://{folder}",
        "file://{folder}/",
        "file:///etc/hostname",
        "file:///",
        "file:",
        "file:a.png",
        "file://{folder}/a.png%00.jpg",
        "file://elsewhere{folder}/a.png",
        "file://127.0.0.1{folder}/a.png",
        "file://localhost:80{folder}/a.png",
        "file://user@localhost{folder}/a.png",
        "file://{folder}/..\\secret.png",
    ],
)
def test_nothing_outside_the_folder_is_read(folder: Path, url: str) -> None:
    with pytest.raises(MediaPolicyError) as caught:
        read(folder, url.format(folder=folder))
    assert str(folder) not in str(caught.value)


@pytest.mark.parametrize("link", ["link.png", "linked/secret.png", "inward.png"])
def test_links_under_the_folder_are_not_followed(folder: Path, tmp_path: Path, link: str) -> None:
    (folder / "link.png").symlink_to(tmp_path / "secret.png")
    (folder / "linked").symlink_to(tmp_path)
    (folder / "inward.png").symlink_to(folder / "a.png")
    with pytest.raises(MediaPolicyError, match="symbolic link"):
        read(folder, f"file://{folder}/{link}")


def test_folder_that_is_swapped_for_a_link_meanwhile_leads_nowhere(folder: Path, tmp_path: Path) -> None:
    """A thread swaps a folder for a link out of it, again and again, while another reads."""
    (tmp_path / "outside").mkdir()
    (tmp_path / "outside" / "b.png").write_bytes(b"SECRET")
    stop = threading.Event()

    def swap() -> None:
        inner, aside = folder / "inner", folder / "aside"
        while not stop.is_set():
            inner.rename(aside)
            inner.symlink_to(tmp_path / "outside")
            inner.unlink()
            aside.rename(inner)

    swapper = threading.Thread(target=swap)
    swapper.start()
    seen = set()
    try:
        with make_fetcher(folder) as fetcher:
            for _ in range(300):
                try:
                    seen.add(fetcher.fetch_image(f"file://{folder}/inner/b.png", EncodedBytesIO()).data)
                except ClientError:
                    continue
    finally:
        stop.set()
        swapper.join(30)
    assert seen <= {b"allowed/inner/b.png"}


def test_fifo_is_refused_and_not_waited_for(folder: Path) -> None:
    os.mkfifo(folder / "fifo.png")
    with pytest.raises(MediaPolicyError, match="not a regular file"):
        read(folder, f"file://{folder}/fifo.png")


def test_directory_and_device_and_socket_are_refused(folder: Path) -> None:
    with pytest.raises(MediaPolicyError, match="not a regular file"):
        read(folder, f"file://{folder}/inner")
    with pytest.raises(MediaPolicyError, match="not a regular file"):
        read(Path("/dev"), "file:///dev/zero")
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(folder / "s"))
        with pytest.raises(ClientError):
            read(folder, f"file://{folder}/s")


def test_file_over_the_cap_is_refused_unread(folder: Path) -> None:
    with (folder / "huge.png").open("wb") as file:
        file.truncate(1 << 40)  # takes no room on the disk
    with pytest.raises(TooLargeError):
        read(folder, f"file://{folder}/huge.png")


@pytest.mark.parametrize(("path", "words"), [("none.png", "no such file"), ("none/a.png", "no such file"), ("x" * 300, "no such file")])
def test_missing_file_is_a_fetch_error_without_its_path(folder: Path, path: str, words: str) -> None:
    with pytest.raises(MediaFetchError, match=words) as caught:
        read(folder, f"file://{folder}/{path}")
    assert caught.value.status == 422
    assert path not in str(caught.value)


def test_file_as_a_folder_is_refused(folder: Path) -> None:
    with pytest.raises(MediaPolicyError):
        read(folder, f"file://{folder}/a.png/b.png")


def test_no_descriptor_is_left_open(folder: Path) -> None:
    with make_fetcher(folder) as fetcher:
        fetcher.fetch_image(f"file://{folder}/a.png", EncodedBytesIO())
        before = len(os.listdir("/proc/self/fd"))
        for path in ("a.png", "inner/b.png", "none.png", "inner", "a.png/b", "inner/none"):
            with suppress(ClientError):
                fetcher.fetch_image(f"file://{folder}/{path}", EncodedBytesIO())
        assert len(os.listdir("/proc/self/fd")) == before
