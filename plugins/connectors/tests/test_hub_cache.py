from __future__ import annotations

import hashlib
import itertools
from collections.abc import Callable
from pathlib import Path

import pytest
from huggingface_hub import try_to_load_from_cache

from inset.api import ClientError, ConfigError, MediaConnector, MediaFetchError, MediaPolicyError, TooLargeError
from inset.media.fetcher import MediaFetcher
from inset.testing.conformance.connector import ConnectorConformance, ConnectorSource
from inset.testing.media_io import EncodedBytesIO
from inset_connectors.hub_cache import HubCacheConnector

MakeFetcher = Callable[..., MediaFetcher]

COMMIT = "0123456789abcdef0123456789abcdef01234567"
PICTURE = bytes(range(256)) * 40


class Cache:
    """A cache as huggingface_hub lays it out."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def put(self, repo: str, path: str, data: bytes, *, ref: str | None = "main") -> Path:
        """Caches a file and returns where it lies in the snapshot."""
        root = self.folder / repo.replace("/", "--")
        blob = root / "blobs" / hashlib.sha256(data).hexdigest()
        entry = root / "snapshots" / COMMIT / path
        for file in (blob, entry):
            file.parent.mkdir(parents=True, exist_ok=True)
        blob.write_bytes(data)
        entry.symlink_to("../" * (2 + path.count("/")) + f"blobs/{blob.name}")
        if ref is not None:
            (root / "refs" / ref).parent.mkdir(parents=True, exist_ok=True)
            (root / "refs" / ref).write_text(COMMIT)
        return entry


@pytest.fixture
def cache(tmp_path: Path) -> Cache:
    return Cache(tmp_path / "hub")


class HubSource(ConnectorSource):
    def __init__(self, cache: Cache) -> None:
        self._cache = cache
        self._numbers = itertools.count()

    def make_connector(self) -> MediaConnector:
        return HubCacheConnector(repos=["datasets/birds/small"], folder=str(self._cache.folder))

    def publish(self, data: bytes) -> str:
        path = f"some folder/{next(self._numbers)}.bin"
        self._cache.put("datasets/birds/small", path, data)
        return f"hf-cache:datasets/birds/small@main/{path}"

    def make_missing_url(self) -> str:
        return "hf-cache:datasets/birds/small@main/b0a7c0de"


class TestConformance(ConnectorConformance):
    @pytest.fixture
    def source(self, cache: Cache) -> HubSource:
        return HubSource(cache)


@pytest.fixture
def fetch(cache: Cache, make_fetcher: MakeFetcher) -> Callable[[str], bytes]:
    """Fetches from the cache, with all repositories allowed."""
    fetcher = make_fetcher(HubCacheConnector(repos=["*"], folder=str(cache.folder)), max_item_download_bytes=100_000)
    return lambda url: fetcher.fetch_image(url, EncodedBytesIO()).data


@pytest.mark.parametrize(
    ("kind", "repo", "ref", "revision"),
    [
        ("models", "Org/Name.with-dots_1", "main", "main"),
        ("models", "gpt2", "main", "main"),
        ("datasets", "Org/Name", "v1.0", "v1.0"),
        ("datasets", "Org/Name", "refs/pr/1", "refs%2Fpr%2F1"),
        ("spaces", "Org/Name", None, COMMIT),
    ],
)
def test_file_is_found_where_the_hubs_own_library_finds_it(
    cache: Cache, fetch: Callable[[str], bytes], kind: str, repo: str, ref: str | None, revision: str
) -> None:
    entry = cache.put(f"{kind}/{repo}", "images/a b.png", PICTURE, ref=ref)
    known = try_to_load_from_cache(repo, "images/a b.png", cache_dir=cache.folder, revision=ref or COMMIT, repo_type=kind[:-1])
    assert known == str(entry)
    assert fetch(f"hf-cache:{kind}/{repo}@{revision}/images/a%20b.png") == PICTURE
    assert fetch(f"HF-Cache:///{kind}/{repo}@{revision}/images/a b.png") == PICTURE


def test_cache_without_links_works(cache: Cache, fetch: Callable[[str], bytes]) -> None:
    entry = cache.put("models/gpt2", "a.png", b"another")
    entry.unlink()
    entry.write_bytes(PICTURE)
    assert fetch("hf-cache:models/gpt2@main/a.png") == PICTURE


@pytest.mark.parametrize("variable", ["HF_HUB_CACHE", "HF_HOME", "XDG_CACHE_HOME"])
def test_folder_is_the_hubs_own_where_none_is_given(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, make_fetcher: MakeFetcher, variable: str
) -> None:
    for name in ("HF_HUB_CACHE", "HF_HOME", "XDG_CACHE_HOME"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv(variable, str(tmp_path))
    below = {"HF_HUB_CACHE": "", "HF_HOME": "hub", "XDG_CACHE_HOME": "huggingface/hub"}[variable]
    Cache(tmp_path / below).put("models/gpt2", "a.png", PICTURE)
    fetcher = make_fetcher(HubCacheConnector(repos=["*"]))
    assert fetcher.fetch_image("hf-cache:models/gpt2@main/a.png", EncodedBytesIO()).data == PICTURE


@pytest.mark.parametrize("repos", [[], "models/gpt2"])
def test_repositories_must_be_named(repos: list[str] | str) -> None:
    with pytest.raises(ConfigError, match="repos"):
        HubCacheConnector(repos=repos)


def test_repository_that_is_not_named_is_refused(cache: Cache, make_fetcher: MakeFetcher) -> None:
    cache.put("models/private/birds", "a.png", PICTURE)
    fetcher = make_fetcher(HubCacheConnector(repos=["models/birds"], folder=str(cache.folder)))
    with pytest.raises(MediaPolicyError, match="not allowed"):
        fetcher.fetch_image("hf-cache:models/private/birds@main/a.png", EncodedBytesIO())


@pytest.mark.parametrize(
    "url",
    [
        "hf-cache:gpt2@main/a.png",
        "hf-cache:models/gpt2/a.png",
        "hf-cache:models/gpt2@main",
        "hf-cache:models/gpt2@main/",
        "hf-cache:models/a/b/c@main/a.png",
        "hf-cache:models/..@main/a.png",
        "hf-cache:models/a--b@main/a.png",
        "hf-cache:models/gpt2@../a.png",
        "hf-cache:models/gpt2@..%2F..%2Fx/a.png",
        "hf-cache:models/gpt2@%2Fetc/a.png",
        "hf-cache:models/gpt2@main/../a.png",
        "hf-cache:models/gpt2@main/%2e%2e/a.png",
        "hf-cache:models/gpt2@main/a%2F..%2Fb.png",
        "hf-cache:models/gpt2@main/a%00.png",
        "hf-cache:models/gpt2@main/%ff.png",
        "hf-cache://models/gpt2@main/a.png",
    ],
)
def test_urls_of_another_form_are_refused(cache: Cache, fetch: Callable[[str], bytes], url: str) -> None:
    cache.put("models/gpt2", "a.png", PICTURE)
    with pytest.raises(MediaPolicyError, match="write hf-cache:"):
        fetch(url)


@pytest.mark.parametrize(
    "url",
    [
        "hf-cache:models/other@main/b0a7c0de.png",
        "hf-cache:models/gpt2@other/b0a7c0de.png",
        f"hf-cache:models/gpt2@{COMMIT[::-1]}/b0a7c0de.png",
        "hf-cache:models/gpt2@main/b0a7c0de.png",
        "hf-cache:models/gpt2@main/b0a7c0de/a.png",
    ],
)
def test_what_is_not_cached_is_not_there(cache: Cache, fetch: Callable[[str], bytes], url: str) -> None:
    cache.put("models/gpt2", "a.png", PICTURE)
    with pytest.raises(MediaFetchError, match="has no such file") as caught:
        fetch(url)
    assert "b0a7c0de" not in str(caught.value)


@pytest.mark.parametrize(
    "target", ["/etc/hostname", "../../../secret", "../../blobs/secret", "../../blobs/../../../secret", "../../snapshots", "b.png"]
)
def test_links_lead_to_blobs_of_the_repository_alone(cache: Cache, fetch: Callable[[str], bytes], target: str) -> None:
    entry = cache.put("models/gpt2", "a.png", PICTURE)
    for secret in (cache.folder / "secret", entry.parents[2] / "blobs" / "secret"):
        secret.write_bytes(b"secret")
    entry.unlink()
    entry.symlink_to(target)
    with pytest.raises(MediaPolicyError, match="leads out of its repository"):
        fetch("hf-cache:models/gpt2@main/a.png")


def test_blob_and_folders_that_are_links_are_refused(cache: Cache, fetch: Callable[[str], bytes]) -> None:
    entry = cache.put("models/gpt2", "folder/a.png", PICTURE)
    blob = entry.resolve()
    (cache.folder / "secret").write_bytes(b"secret")
    blob.unlink()
    blob.symlink_to(cache.folder / "secret")
    with pytest.raises(MediaPolicyError, match="over a link"):
        fetch("hf-cache:models/gpt2@main/folder/a.png")
    (entry.parent.parent / "other").symlink_to(cache.folder)
    with pytest.raises(MediaPolicyError, match="over a link"):
        fetch("hf-cache:models/gpt2@main/other/secret")


@pytest.mark.parametrize("text", ["", "main", COMMIT[:-1], "../" * 13 + "x", "g" * 40, "0" * 65])
def test_ref_must_be_a_commit(cache: Cache, fetch: Callable[[str], bytes], text: str) -> None:
    entry = cache.put("models/gpt2", "a.png", PICTURE)
    (entry.parents[2] / "refs" / "main").write_text(text)
    with pytest.raises(ClientError):
        fetch("hf-cache:models/gpt2@main/a.png")


def test_file_over_the_cap_is_refused(cache: Cache, fetch: Callable[[str], bytes]) -> None:
    cache.put("models/gpt2", "a.png", bytes(100_001))
    with pytest.raises(TooLargeError):
        fetch("hf-cache:models/gpt2@main/a.png")
