from __future__ import annotations

import gzip
import io
import itertools
import random
import stat
import struct
import tarfile
import zipfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from inset.api import ClientError, MediaConfig, MediaConnector, MediaFetchError, MediaPolicyError, TooLargeError
from inset.media.fetcher import MediaFetcher
from inset.media.local import FileConnector
from inset.testing.conformance.connector import Bench, ConnectorConformance, ConnectorSource, make_budget
from inset.testing.media_io import EncodedBytesIO
from inset.testing.media_server import MediaServer
from inset.testing.watched_connector import watch
from inset_connectors.archive import ArchiveConnector

MakeFetcher = Callable[..., MediaFetcher]

PICTURE = bytes(range(256)) * 40


def make_zip(members: Mapping[str, bytes], *, method: int = zipfile.ZIP_DEFLATED) -> bytes:
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w", method) as archive:
        for name, data in members.items():
            archive.writestr(name, data)
    return file.getvalue()


def make_tar(members: Mapping[str, bytes | tarfile.TarInfo], *, mode: str = "w:gz") -> bytes:
    file = io.BytesIO()
    with tarfile.open(fileobj=file, mode=mode) as archive:  # type: ignore[call-overload]  # the mode is a parameter here
        for name, data in members.items():
            info = tarfile.TarInfo(name) if isinstance(data, bytes) else data
            content = data if isinstance(data, bytes) else b""
            info.size = len(content) or info.size
            archive.addfile(info, io.BytesIO(content))
    return file.getvalue()


MAKERS: Mapping[str, Callable[[Mapping[str, bytes]], bytes]] = {"zip": make_zip, "tar": make_tar}


class ArchiveSource(ConnectorSource):
    """Publishes each item in an archive of its own."""

    def __init__(self, folder: Path, kind: str) -> None:
        self._folder = folder
        self._kind = kind
        self._numbers = itertools.count()

    def make_connector(self) -> MediaConnector:
        return ArchiveConnector()

    def publish(self, data: bytes) -> str:
        path = self._folder / f"archive {next(self._numbers)}"
        path.write_bytes(MAKERS[self._kind]({"some folder/item": data, "other": b"no"}))
        return f"{self._kind}+{path.as_uri()}!/some%20folder/item"

    def make_missing_url(self) -> str:
        return self.publish(b"x").replace("item", "b0a7c0de")

    def get_config_options(self) -> Mapping[str, Any]:
        return {"allowed_local_media_path": self._folder}


class TestConformance(ConnectorConformance):
    @pytest.fixture(params=["zip", "tar"])
    def source(self, request: pytest.FixtureRequest, tmp_path: Path) -> ArchiveSource:
        return ArchiveSource(tmp_path, request.param)

    @contextmanager
    def make_bench(self, source: ConnectorSource, **options: Any) -> Iterator[Bench]:
        connector = watch(source.make_connector())
        with MediaFetcher([connector, FileConnector()], MediaConfig(**{**source.get_config_options(), **options})) as fetcher:
            yield Bench(fetcher, connector)


def fetch(fetcher: MediaFetcher, url: str, **options: Any) -> bytes:
    return fetcher.fetch_image(url, EncodedBytesIO(**options)).data


def link(kind: bytes, target: str = "other") -> tarfile.TarInfo:
    info = tarfile.TarInfo("item")
    info.type, info.linkname = kind, target
    return info


# Where archives come from


@pytest.mark.parametrize(
    ("scheme", "archive"),
    [
        ("zip", make_zip({"a/b.png": PICTURE})),
        ("zip", make_zip({"a/b.png": PICTURE}, method=zipfile.ZIP_STORED)),
        ("tar", make_tar({"a/b.png": PICTURE})),
        ("tar", make_tar({"./a/b.png": PICTURE}, mode="w")),
        ("tar", make_tar({"first": PICTURE * 20, "a/b.png": PICTURE}, mode="w")),
    ],
)
def test_member_comes_from_an_archive_behind_http(
    make_fetcher: MakeFetcher, media_server: MediaServer, scheme: str, archive: bytes
) -> None:
    url = media_server.serve("/archive", archive)
    assert fetch(make_fetcher(ArchiveConnector()), f"{scheme}+{url}!/a/b.png") == PICTURE


@pytest.mark.parametrize(
    ("url", "words"),
    [
        ("zip+http://10.0.0.1/a.zip!/item", "private address"),
        ("zip+http://0x7f.1/a.zip!/item", "unusual spelling"),
        ("zip+file:///etc/a.zip!/item", "--allowed-local-media-path"),
        ("zip+shelf://books/a.zip!/item", "No media connector serves shelf:"),
        ("zip+/a.zip!/item", "scheme"),
        ("zip+zip+http://127.0.0.1/a.zip!/item", "inside another"),
        ("zip+http://127.0.0.1/a.zip", "one !/ stands between"),
        ("zip+http://127.0.0.1/a.zip!/", "one !/ stands between"),
        ("zip+http://127.0.0.1/a.zip!/b.zip!/item", "one !/ stands between"),
    ],
)
def test_rules_hold_for_the_archives_own_url(make_fetcher: MakeFetcher, url: str, words: str) -> None:
    with pytest.raises(MediaPolicyError, match=words):
        fetch(make_fetcher(ArchiveConnector()), url)


def test_host_list_holds_for_the_archives_own_url(make_fetcher: MakeFetcher, media_server: MediaServer) -> None:
    url = media_server.serve("/archive", make_zip({"item": PICTURE}))
    with pytest.raises(MediaPolicyError, match="--allowed-media-domains"):
        fetch(make_fetcher(ArchiveConnector(), allowed_media_domains=("elsewhere.example",)), f"zip+{url}!/item")
    assert media_server.requests == []


# Names of members


@pytest.mark.parametrize("name", ["../item", "a/../item", "./item", "/item", "a//item", "a/", "%2e%2e/item", "a%5Citem", "a%00", "%ff"])
def test_names_that_are_no_plain_paths_are_refused(make_fetcher: MakeFetcher, media_server: MediaServer, name: str) -> None:
    url = media_server.serve("/archive", make_zip({"item": PICTURE, name: PICTURE}))
    with pytest.raises(MediaPolicyError, match="plain relative path"):
        fetch(make_fetcher(ArchiveConnector()), f"zip+{url}!/{name}")
    assert media_server.requests == []


def make_zip_link(target: str) -> bytes:
    file = io.BytesIO()
    info = zipfile.ZipInfo("item")
    info.external_attr = (stat.S_IFLNK | 0o777) << 16
    with zipfile.ZipFile(file, "w") as archive:
        archive.writestr(info, target)
        archive.writestr("other", PICTURE)
    return file.getvalue()


@pytest.mark.parametrize(
    ("scheme", "archive"),
    [
        ("zip", make_zip_link("other")),
        ("zip", make_zip_link("/etc/hostname")),
        ("tar", make_tar({"other": PICTURE, "item": link(tarfile.SYMTYPE)})),
        ("tar", make_tar({"other": PICTURE, "item": link(tarfile.LNKTYPE)})),
        ("tar", make_tar({"item": link(tarfile.SYMTYPE, "/etc/hostname")})),
        ("tar", make_tar({"item": link(tarfile.CHRTYPE)})),
        ("tar", make_tar({"item": link(tarfile.FIFOTYPE)})),
        ("tar", make_tar({"item": link(tarfile.DIRTYPE)})),
    ],
)
def test_links_and_devices_are_refused(make_fetcher: MakeFetcher, media_server: MediaServer, scheme: str, archive: bytes) -> None:
    url = media_server.serve("/archive", archive)
    with pytest.raises(MediaPolicyError, match="link"):
        fetch(make_fetcher(ArchiveConnector()), f"{scheme}+{url}!/item")


# Limits


def test_archive_may_be_as_large_as_an_item_and_no_larger(make_fetcher: MakeFetcher, media_server: MediaServer) -> None:
    archive = make_zip({"item": PICTURE, "other": random.Random(0).randbytes(5000)})
    url = media_server.serve("/archive", archive)
    assert fetch(make_fetcher(ArchiveConnector(), max_item_download_bytes=len(archive) + 10_000), f"zip+{url}!/item") == PICTURE
    with pytest.raises(TooLargeError):
        fetch(make_fetcher(ArchiveConnector(), max_item_download_bytes=len(archive) - 1), f"zip+{url}!/item")


def test_decoders_smaller_cap_holds_for_the_member_alone(make_fetcher: MakeFetcher, media_server: MediaServer) -> None:
    url = media_server.serve("/archive", make_zip({"item": b"small", "other": random.Random(0).randbytes(5000)}))
    assert fetch(make_fetcher(ArchiveConnector()), f"zip+{url}!/item", max_bytes=5) == b"small"


def test_archives_bytes_count_for_the_request(make_fetcher: MakeFetcher, media_server: MediaServer) -> None:
    archive = make_zip({"item": b"small", "other": random.Random(0).randbytes(5000)})
    url = media_server.serve("/archive", archive)
    budget = make_budget()
    make_fetcher(ArchiveConnector()).fetch_image(f"zip+{url}!/item", EncodedBytesIO(), budget=budget)
    assert budget.downloaded_bytes == len(archive)


@pytest.mark.parametrize("scheme", ["zip", "tar"])
def test_bomb_ends_at_the_cap(make_fetcher: MakeFetcher, media_server: MediaServer, scheme: str) -> None:
    url = media_server.serve("/archive", MAKERS[scheme]({"item": bytes(20_000_000)}))
    with pytest.raises(TooLargeError):
        fetch(make_fetcher(ArchiveConnector(), max_item_download_bytes=1_000_000), f"{scheme}+{url}!/item")


def test_bomb_before_the_member_of_a_packed_tar_ends_at_the_cap(make_fetcher: MakeFetcher, media_server: MediaServer) -> None:
    url = media_server.serve("/archive", make_tar({"bomb": bytes(20_000_000), "item": PICTURE}))
    with pytest.raises(TooLargeError):
        fetch(make_fetcher(ArchiveConnector(), max_item_download_bytes=1_000_000), f"tar+{url}!/item")


@pytest.mark.parametrize("pack", [bytes, gzip.compress])
@pytest.mark.parametrize("kind", [tarfile.REGTYPE, tarfile.GNUTYPE_SPARSE])
def test_tar_is_not_searched_behind_a_member_that_says_it_is_endless(
    make_fetcher: MakeFetcher, media_server: MediaServer, pack: Callable[[bytes], bytes], kind: bytes
) -> None:
    endless = tarfile.TarInfo("other")
    endless.type, endless.size = kind, 2**40
    url = media_server.serve("/archive", pack(endless.tobuf(tarfile.GNU_FORMAT) + make_tar({"item": PICTURE}, mode="w")))
    with pytest.raises(TooLargeError):
        fetch(make_fetcher(ArchiveConnector()), f"tar+{url}!/item")


def test_zip_member_that_is_longer_than_it_says_is_never_given_further(make_fetcher: MakeFetcher, media_server: MediaServer) -> None:
    archive = bytearray(make_zip({"item": PICTURE}))
    directory = archive.rfind(b"PK\x01\x02")
    archive[directory + 24 : directory + 28] = struct.pack("<I", 100)
    url = media_server.serve("/archive", bytes(archive))
    with pytest.raises(MediaFetchError, match="damaged"):
        fetch(make_fetcher(ArchiveConnector()), f"zip+{url}!/item")


@pytest.mark.parametrize(
    ("scheme", "archive"),
    [
        ("zip", make_zip({f"{number:0200}": b"" for number in range(20_000)})),
        ("tar", gzip.compress(tarfile.TarInfo("other").tobuf() * 16_385, 1)),
    ],
)
def test_archive_with_too_many_members_is_refused(
    make_fetcher: MakeFetcher, media_server: MediaServer, scheme: str, archive: bytes
) -> None:
    url = media_server.serve("/archive", archive)
    with pytest.raises(MediaFetchError, match="too many members"):
        fetch(make_fetcher(ArchiveConnector()), f"{scheme}+{url}!/item")


# Damage


def make_encrypted_zip() -> bytes:
    archive = bytearray(make_zip({"item": PICTURE}))
    archive[archive.rfind(b"PK\x01\x02") + 8] |= 1
    return bytes(archive)


def make_cut_sparse_tar() -> bytes:
    info = tarfile.TarInfo("other")
    info.type = tarfile.GNUTYPE_SPARSE
    header = bytearray(info.tobuf(tarfile.GNU_FORMAT))
    header[482] = 1  # the map of its holes goes on in a block that is missing
    header[148:156] = b"%06o\0 " % (sum(header[:148]) + 8 * ord(" ") + sum(header[156:]))
    return bytes(header)


def make_twin_zip() -> bytes:
    return make_zip({"item": PICTURE, "itel": b"other"}).replace(b"itel", b"item")


@pytest.mark.parametrize(
    ("scheme", "archive"),
    [
        ("zip", b"no archive at all"),
        ("zip", make_tar({"item": PICTURE})),
        ("zip", make_zip({"other": PICTURE})),
        ("zip", make_zip({"item": PICTURE})[:-30]),
        ("zip", make_zip({"item": PICTURE}, method=zipfile.ZIP_STORED).replace(b"\x10\x11\x12", b"\x10\x11\x13", 1)),
        ("zip", make_zip({"item": PICTURE}, method=zipfile.ZIP_BZIP2)),
        ("zip", make_zip({"item": PICTURE}, method=zipfile.ZIP_LZMA)),
        ("zip", make_encrypted_zip()),
        ("zip", make_twin_zip()),
        ("tar", b"no archive at all"),
        ("tar", make_zip({"item": PICTURE})),
        ("tar", make_tar({"other": PICTURE})),
        ("tar", make_tar({"item": PICTURE})[:-100]),
        ("tar", make_tar({"item": PICTURE}, mode="w")[:5000]),
        ("tar", make_tar({"item": PICTURE}, mode="w:xz")),
        ("tar", make_cut_sparse_tar()),
        ("tar", gzip.compress(b"no archive at all")),
        ("tar", b"\x1f\x8bno gzip"),
    ],
)
def test_damaged_or_foreign_archive_is_an_error_at_once(
    make_fetcher: MakeFetcher, media_server: MediaServer, scheme: str, archive: bytes
) -> None:
    url = media_server.serve("/archive", archive)
    with pytest.raises(MediaFetchError) as caught:
        fetch(make_fetcher(ArchiveConnector()), f"{scheme}+{url}!/item?s3cr3t")
    with pytest.raises(MediaFetchError, match="archive"):
        fetch(make_fetcher(ArchiveConnector()), f"{scheme}+{url}!/item")
    assert media_server.count("/archive") == 2
    assert "item" not in str(caught.value)
    assert "s3cr3t" not in str(caught.value)


@pytest.mark.parametrize(("scheme", "make"), [("zip", make_zip), ("tar", lambda members: make_tar(members, mode="w"))])
def test_damage_anywhere_is_a_client_error_or_harmless(
    make_fetcher: MakeFetcher, media_server: MediaServer, scheme: str, make: Callable[[Mapping[str, bytes]], bytes]
) -> None:
    archive = make({"item": b"some words " * 20, "folder/other": b"others"})
    fetcher = make_fetcher(ArchiveConnector())
    chance = random.Random(7)
    for _ in range(100):
        damaged = bytearray(archive)
        for _ in range(3):
            damaged[chance.randrange(len(damaged))] = chance.randrange(256)
        url = media_server.serve("/archive", bytes(damaged))
        try:
            fetch(fetcher, f"{scheme}+{url}!/item")
        except ClientError as error:
            assert "failed (" not in str(error), "an exception that the connector does not know"  # noqa: PT017  # most are harmless
