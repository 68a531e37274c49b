from __future__ import annotations

import io
import itertools
import queue
import sys
import threading
from collections.abc import Callable, Iterator
from typing import Any, ClassVar

import fsspec
import pytest
from fsspec.implementations.memory import MemoryFileSystem

from inset.api import (
    ConfigError,
    MediaConnector,
    MediaFetchError,
    MediaPolicyError,
    MediaTimeoutError,
    MissingExtraError,
    TooLargeError,
)
from inset.media.fetcher import MediaFetcher
from inset.testing.conformance.connector import ConnectorConformance, ConnectorSource
from inset.testing.media_io import EncodedBytesIO
from inset_connectors.filesystem import FilesystemConnector
from inset_connectors.pieces import PIECE_BYTES

MakeFetcher = Callable[..., MediaFetcher]

PICTURE = bytes(range(256)) * 40


@pytest.fixture(autouse=True)
def memory() -> Iterator[MemoryFileSystem]:
    """The store that all memory: clients of fsspec share, emptied after the test."""
    client = MemoryFileSystem()
    yield client
    client.store.clear()
    client.pseudo_dirs[:] = [""]


class MemorySource(ConnectorSource):
    def __init__(self, memory: MemoryFileSystem) -> None:
        self._memory = memory
        self._numbers = itertools.count()

    def make_connector(self) -> MediaConnector:
        return FilesystemConnector(protocols={"memory": {}})

    def publish(self, data: bytes) -> str:
        name = f"some folder/{next(self._numbers)} ü.png"
        self._memory.pipe_file(f"/birds/{name}", data)
        return f"fsspec+memory://birds/{name}"

    def make_missing_url(self) -> str:
        return "fsspec+memory://birds/b0a7c0de"


class TestConformance(ConnectorConformance):
    @pytest.fixture
    def source(self, memory: MemoryFileSystem) -> MemorySource:
        return MemorySource(memory)


class HostedFileSystem(MemoryFileSystem):  # type: ignore[misc]  # fsspec has no types
    """A memory: client that connects to a host, as those of sftp: and ftp: do."""

    protocol = "hosted"
    made: ClassVar[list[dict[str, Any]]] = []
    opening: ClassVar[threading.Event]
    go_on: ClassVar[threading.Event]
    closed_by: ClassVar[queue.Queue[str]]

    def __init__(self, **options: Any) -> None:
        super().__init__(**options)
        self.made.append(options)

    @staticmethod
    def _get_kwargs_from_urls(path: str) -> dict[str, Any]:
        return {"host": path.removeprefix("hosted://").partition("/")[0]}

    @classmethod
    def _strip_protocol(cls, path: str) -> str:
        return "/" + path.removeprefix("hosted://").partition("/")[2]

    def info(self, path: str, **options: Any) -> Any:
        if path.endswith("slow.png"):
            self.opening.set()
            assert self.go_on.wait(20)
        info = super().info(path, **options)
        return {**info, "size": None} if "unknown size" in path else info

    def open(self, path: str, mode: str = "rb", **options: Any) -> Any:
        file = super().open(path, mode, **options)
        return WatchedFile(file.read(), self) if "watched" in path else file


class WatchedFile(io.BytesIO):
    """A file that says which thread closed it, and whose second piece comes late."""

    def __init__(self, data: bytes, client: HostedFileSystem) -> None:
        super().__init__(data)
        self._client = client

    def read(self, size: int | None = -1, /) -> bytes:
        if self.tell() and self.getvalue()[:1] == b"s":
            self._client.opening.set()
            assert self._client.go_on.wait(20)
        return super().read(size)

    def close(self) -> None:
        if not self.closed:
            self._client.closed_by.put(threading.current_thread().name)
        super().close()


@pytest.fixture
def hosted(monkeypatch: pytest.MonkeyPatch) -> type[HostedFileSystem]:
    monkeypatch.setattr(HostedFileSystem, "made", [])
    for name in ("opening", "go_on"):
        monkeypatch.setattr(HostedFileSystem, name, threading.Event(), raising=False)
    monkeypatch.setattr(HostedFileSystem, "closed_by", queue.Queue(), raising=False)
    fsspec.register_implementation("hosted", HostedFileSystem, clobber=True)
    return HostedFileSystem


def fetch(fetcher: MediaFetcher, url: str) -> bytes:
    return fetcher.fetch_image(url, EncodedBytesIO()).data


def test_client_is_made_once_with_the_operators_options(
    hosted: type[HostedFileSystem], memory: MemoryFileSystem, make_fetcher: MakeFetcher
) -> None:
    memory.pipe_file("/a/b.png", PICTURE)
    options = {"host": "files.example", "password": "s3cr3t"}
    fetcher = make_fetcher(FilesystemConnector(protocols={"hosted": options}))
    assert hosted.made == []
    assert [fetch(fetcher, "fsspec+hosted://files.example/a/b.png") for _ in range(3)] == [PICTURE] * 3
    assert hosted.made == [options]


def test_url_cannot_say_how_to_connect(hosted: type[HostedFileSystem], make_fetcher: MakeFetcher) -> None:
    fetcher = make_fetcher(FilesystemConnector(protocols={"hosted": {"host": "files.example"}}))
    with pytest.raises(MediaPolicyError, match="how to connect"):
        fetch(fetcher, "fsspec+hosted://elsewhere.example/a.png")
    assert hosted.made == []


@pytest.mark.parametrize(
    "url",
    [
        "fsspec+memory://birds/a.png::file:///etc/hostname",
        "fsspec+memory://birds/a.png%3A%3Afile%3A",
        "fsspec+memory:/birds/a.png",
        "fsspec+memory://birds",
        "fsspec+memory://birds/",
        "fsspec+memory://birds/../a.png",
        "fsspec+memory://birds/%2e%2e/a.png",
        "fsspec+memory://birds//a.png",
        "fsspec+memory://birds/a.png?b",
        "fsspec+file:///etc/hostname",
        "fsspec+http://127.0.0.1/a.png",
        "fsspec+simplecache::memory://birds/a.png",
        "fsspec+simplecache://birds/a.png",
    ],
)
def test_urls_that_are_chained_or_not_enabled_are_refused(memory: MemoryFileSystem, make_fetcher: MakeFetcher, url: str) -> None:
    memory.pipe_file("/birds/a.png", PICTURE)
    with pytest.raises(MediaPolicyError):
        fetch(make_fetcher(FilesystemConnector(protocols={"memory": {}})), url)


@pytest.mark.parametrize(
    "protocol",
    ["file", "local", "http", "https", "cached", "blockcache", "filecache", "simplecache", "reference", "dir", "zip", "tar", "generic"],
)
def test_protocols_that_walk_around_the_rules_cannot_be_enabled(protocol: str) -> None:
    with pytest.raises(ConfigError, match="walk around"):
        FilesystemConnector(protocols={protocol: {}})


@pytest.mark.parametrize(
    ("protocols", "words"), [({}, "needs the option protocols"), (["memory"], "needs the option"), ({"nonsense": {}}, "does not know it")]
)
def test_options_that_do_not_fit_are_said_at_start(protocols: Any, words: str) -> None:
    with pytest.raises(ConfigError, match=words):
        FilesystemConnector(protocols=protocols)


@pytest.mark.parametrize(
    ("module", "protocol", "words"), [("fsspec", "memory", r"inset-connectors\[fsspec\]"), ("paramiko", "sftp", "sftp")]
)
def test_what_is_missing_is_said_at_start(monkeypatch: pytest.MonkeyPatch, module: str, protocol: str, words: str) -> None:
    monkeypatch.setitem(sys.modules, module, None)
    with pytest.raises(MissingExtraError, match=words):
        FilesystemConnector(protocols={protocol: {}})


def test_folder_is_no_file(memory: MemoryFileSystem, make_fetcher: MakeFetcher) -> None:
    memory.pipe_file("/birds/folder/a.png", PICTURE)
    with pytest.raises(MediaFetchError, match="no file"):
        fetch(make_fetcher(FilesystemConnector(protocols={"memory": {}})), "fsspec+memory://birds/folder")


def test_call_that_hangs_holds_up_its_own_protocol_alone(
    hosted: type[HostedFileSystem], memory: MemoryFileSystem, make_fetcher: MakeFetcher
) -> None:
    memory.pipe_file("/slow.png", PICTURE)
    memory.pipe_file("/birds/a.png", PICTURE)
    connector = FilesystemConnector(protocols={"memory": {}, "hosted": {"host": "files.example"}})
    fetcher = make_fetcher(connector, image_fetch_timeout_seconds=0.1, max_fetch_attempts=1)
    with pytest.raises(MediaTimeoutError):
        fetch(fetcher, "fsspec+hosted://files.example/slow.png")
    assert hosted.opening.wait(20)
    assert fetcher.fetch_audio("fsspec+memory://birds/a.png", EncodedBytesIO()).data == PICTURE
    hosted.go_on.set()
    assert fetcher.fetch_audio("fsspec+hosted://files.example/slow.png", EncodedBytesIO()).data == PICTURE


def test_file_that_is_not_read_to_its_end_is_closed_in_the_clients_own_thread(
    hosted: type[HostedFileSystem], memory: MemoryFileSystem, make_fetcher: MakeFetcher
) -> None:
    memory.pipe_file("/watched of unknown size", bytes(3 * PIECE_BYTES))
    fetcher = make_fetcher(FilesystemConnector(protocols={"hosted": {"host": "files.example"}}))
    with pytest.raises(TooLargeError):
        fetcher.fetch_image("fsspec+hosted://files.example/watched%20of%20unknown%20size", EncodedBytesIO(max_bytes=PIECE_BYTES - 1))
    assert hosted.closed_by.get(timeout=20).startswith("inset-fsspec-hosted")


def test_file_that_nobody_waits_for_is_closed_when_the_call_that_hangs_has_ended(
    hosted: type[HostedFileSystem], memory: MemoryFileSystem, make_fetcher: MakeFetcher
) -> None:
    memory.pipe_file("/watched", b"s" * (2 * PIECE_BYTES))
    fetcher = make_fetcher(
        FilesystemConnector(protocols={"hosted": {"host": "files.example"}}), image_fetch_timeout_seconds=0.5, max_fetch_attempts=1
    )
    with pytest.raises(MediaTimeoutError):
        fetch(fetcher, "fsspec+hosted://files.example/watched")
    assert hosted.opening.wait(20)
    assert hosted.closed_by.empty()
    hosted.go_on.set()
    assert hosted.closed_by.get(timeout=20).startswith("inset-fsspec-hosted")
