from __future__ import annotations

import fcntl
import hashlib
import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import pytest

from inset.media.download_cache import ENTRY_BYTES, CachedDownload, DownloadCache
from inset.media.stream import Validators

NONE = Validators()
ETAG = Validators(etag='"1"', last_modified="Wed, 21 Oct 2015 07:28:00 GMT")
PICTURE = b"picture" * 100


def make_cache(folder: Path, *, max_bytes: int = 1 << 30, max_age_seconds: float = 3600.0) -> DownloadCache:
    return DownloadCache(folder, max_bytes=max_bytes, max_age_seconds=max_age_seconds)


def files(folder: Path) -> list[Path]:
    return sorted(path for path in folder.rglob("*") if path.is_file() and path.name != "size")


def size_of(folder: Path) -> int:
    return sum(max(path.stat().st_size, ENTRY_BYTES) for path in files(folder))


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path / "cache"


def test_what_is_stored_is_found_by_another_process_and_under_no_other_url(folder: Path) -> None:
    make_cache(folder).store("http://a/", b"bytes", ETAG)
    code = "import sys; from pathlib import Path; from inset.media.download_cache import DownloadCache as D; "
    code += "print(D(Path(sys.argv[1]), max_bytes=1, max_age_seconds=9e9).find('http://a/'))"
    seen = subprocess.run([sys.executable, "-c", code, str(folder)], check=True, capture_output=True, text=True, timeout=60)
    assert seen.stdout.strip() == repr(CachedDownload(b"bytes", ETAG))
    assert make_cache(folder).find("http://a/?x") is None


def test_equal_bytes_are_kept_once(folder: Path) -> None:
    cache = make_cache(folder)
    for url in ("http://a/", "http://b/"):
        cache.store(url, PICTURE, NONE)
    assert [path.name for path in (folder / "contents").iterdir()] == [hashlib.sha256(PICTURE).hexdigest()]
    assert cache.find("http://a/") == cache.find("http://b/") == CachedDownload(PICTURE, NONE)


def test_dropped_bytes_are_found_under_no_url(folder: Path) -> None:
    cache = make_cache(folder)
    for url in ("http://a/", "http://b/"):
        cache.store(url, PICTURE, NONE)
    cache.drop(PICTURE)
    cache.drop(b"never stored")
    assert cache.find("http://a/") is None
    assert cache.find("http://b/") is None


def test_nothing_on_disk_shows_a_url_and_nobody_else_may_read_it(folder: Path) -> None:
    make_cache(folder).store("http://a/p4th?signature=s3cr3t", PICTURE, ETAG)
    for path in files(folder):
        assert path.stat().st_mode & 0o077 == 0
        assert not any(secret in path.read_bytes() + bytes(path) for secret in (b"s3cr3t", b"p4th"))


@pytest.mark.parametrize("data", [b"", b"x" * 100_000])
def test_empty_and_too_large_bodies_are_not_kept(folder: Path, data: bytes) -> None:
    make_cache(folder, max_bytes=50_000).store("http://a/", data, NONE)
    assert files(folder) == []


def test_what_is_too_old_is_not_found(folder: Path) -> None:
    cache = make_cache(folder, max_age_seconds=100)
    cache.store("http://a/", PICTURE, NONE)
    (entry,) = (folder / "entries").iterdir()
    known = json.loads(entry.read_bytes())
    for age, is_found in ((0, True), (99, True), (101, False), (-5, False)):
        entry.write_text(json.dumps({**known, "asked_at": known["asked_at"] - age}))
        assert (cache.find("http://a/") is not None) is is_found
    cache.renew("http://a/", CachedDownload(PICTURE, NONE))
    assert cache.find("http://a/") is not None


@pytest.mark.parametrize(
    "junk",
    [b"", b"{", b"[]", b"{}", b'{"sha256": 5}', b'{"sha256": "../../secret", "etag": null, "last_modified": null, "asked_at": 0}', b"\xff"],
)
def test_damaged_entry_is_a_miss_and_leads_nowhere(folder: Path, tmp_path: Path, junk: bytes) -> None:
    cache = make_cache(folder, max_age_seconds=1e12)
    cache.store("http://a/", PICTURE, NONE)
    (entry,) = (folder / "entries").iterdir()
    entry.write_bytes(junk)
    (tmp_path / "secret").write_bytes(b"not ours")
    assert cache.find("http://a/") is None
    assert (tmp_path / "secret").exists()


def test_damaged_content_is_a_miss_and_goes_away(folder: Path) -> None:
    cache = make_cache(folder)
    cache.store("http://a/", PICTURE, NONE)
    (content,) = (folder / "contents").iterdir()
    content.write_bytes(PICTURE[:-1])
    assert cache.find("http://a/") is None
    assert not content.exists()


def test_what_was_used_longest_ago_goes_first_and_the_size_is_held(folder: Path) -> None:
    limit = 12 * ENTRY_BYTES
    cache = make_cache(folder, max_bytes=limit)
    for number in range(30):
        cache.store(f"http://a/{number}", b"%d" % number * 10, NONE)
        assert cache.find("http://a/0") is not None, "it is used all the time"
        assert size_of(folder) <= limit
        for path in files(folder):  # a minute passes
            status = path.stat()
            os.utime(path, (status.st_atime - 60, status.st_mtime - 60))
    assert cache.find("http://a/29") is not None
    assert cache.find("http://a/1") is None


def test_entries_without_bytes_count_too(folder: Path) -> None:
    cache = make_cache(folder, max_bytes=20 * ENTRY_BYTES)
    for number in range(100):
        cache.store(f"http://a/{number}", PICTURE, NONE)
    assert size_of(folder) <= 20 * ENTRY_BYTES


def test_full_cache_is_swept_further_than_needed_and_then_left_alone_for_a_while(folder: Path) -> None:
    cache = make_cache(folder, max_bytes=100 * ENTRY_BYTES)
    for number in range(50):
        cache.store(f"http://a/{number}", b"%d" % number, NONE)
    assert len(files(folder)) == 100
    cache.store("http://b/0", b"b0", NONE)
    left = files(folder)
    assert len(left) == 90
    for number in range(1, 6):
        cache.store(f"http://b/{number}", b"b%d" % number, NONE)
    assert set(left) < set(files(folder))
    cache.store("http://b/6", b"b6", NONE)
    assert len(files(folder)) == 90


@pytest.mark.parametrize("counter", ["", "not a number", "12 and more that somebody wrote behind it"])
def test_counter_that_says_nothing_is_counted_again(folder: Path, counter: str) -> None:
    cache = make_cache(folder, max_bytes=20 * ENTRY_BYTES)
    for number in range(60):
        if number % 6 == 5:
            (folder / "size").write_text(counter)
        cache.store(f"http://a/{number}", b"%d" % number, NONE)
        assert size_of(folder) <= 20 * ENTRY_BYTES
    assert int((folder / "size").read_text()) == size_of(folder)


FULL_DISK = """
import resource, sys
from pathlib import Path
from inset.media.download_cache import DownloadCache
from inset.media.stream import Validators
cache = DownloadCache(Path(sys.argv[1]), max_bytes=1 << 20, max_age_seconds=1000)
resource.setrlimit(resource.RLIMIT_FSIZE, (0, 0))
cache.store("http://b/", b"other", Validators())
assert cache.find("http://b/") is None
"""


def test_counter_that_cannot_be_written_keeps_what_it_says(folder: Path) -> None:
    make_cache(folder).store("http://a/", b"bytes", NONE)
    before = (folder / "size").read_bytes()
    subprocess.run([sys.executable, "-W", "error", "-c", FULL_DISK, str(folder)], check=True, capture_output=True, timeout=60)
    assert (folder / "size").read_bytes() == before


def test_old_and_unfinished_files_are_swept(folder: Path) -> None:
    cache = make_cache(folder, max_bytes=10 * ENTRY_BYTES, max_age_seconds=1000)
    cache.store("http://a/", PICTURE, NONE)
    left_behind = folder / "contents" / "new-left-behind"
    left_behind.write_bytes(b"half")
    for path in files(folder):
        os.utime(path, (0, 0))
    (folder / "size").write_text("not a number")
    cache.store("http://b/", b"other", NONE)
    assert not left_behind.exists()
    assert cache.find("http://a/") is None
    assert cache.find("http://b/") is not None


def test_lock_in_the_hands_of_a_stopped_process_stops_nobody(folder: Path) -> None:
    cache = make_cache(folder)
    cache.store("http://a/", PICTURE, NONE)
    descriptor = os.open(folder / "size", os.O_RDWR)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        cache.store("http://b/", b"other", NONE)
        assert cache.find("http://b/") is None, "it is not kept, and nothing waits"
        assert cache.find("http://a/") is not None
    finally:
        os.close(descriptor)


WORKER = """
import random, sys
from pathlib import Path
from inset.media.download_cache import ENTRY_BYTES, DownloadCache
from inset.media.ref import MediaRef
from inset.media.stream import Validators
cache = DownloadCache(Path(sys.argv[1]), max_bytes=20 * ENTRY_BYTES, max_age_seconds=1000)
rng, num_hits = random.Random(int(sys.argv[2])), 0
for _ in range(200):
    number = rng.randrange(40)
    found, expected = cache.find(f"http://a/{number}"), b"%d" % number * rng.randrange(1, 3) * 500
    if found is not None:
        num_hits += 1
        assert found.data.startswith(b"%d" % number), "another picture"
        assert set(found.data) <= set(b"%d" % number)
    if rng.random() < 0.1:
        cache.drop(expected)
    cache.store(f"http://a/{number}", expected, Validators(etag=str(number)))
assert num_hits > 5
"""


def test_several_processes_store_find_drop_and_evict_without_harm(folder: Path) -> None:
    command = [sys.executable, "-W", "error", "-c", WORKER, str(folder)]
    workers = [subprocess.Popen([*command, str(seed)], stderr=subprocess.PIPE, text=True) for seed in range(3)]
    ended = [(worker.communicate(timeout=120)[1], worker.returncode) for worker in workers]
    assert ended == [("", 0)] * 3
    assert size_of(folder) <= 24 * ENTRY_BYTES  # two others may each have had one item, bytes and entry, under way


@pytest.mark.parametrize(("age_seconds", "is_kept"), [(0, True), (7200, False)])
def test_file_under_way_in_another_process_is_spared_and_an_abandoned_one_is_not(folder: Path, age_seconds: int, is_kept: bool) -> None:
    cache = make_cache(folder, max_bytes=4 * ENTRY_BYTES)
    cache.store("http://a/", b"first", NONE)
    unfinished = folder / "contents" / "new-abc"
    unfinished.write_bytes(b"half")
    then = time.time() - age_seconds
    os.utime(unfinished, (then, then))
    for number in range(4):
        cache.store(f"http://b/{number}", b"%d" % number, NONE)
    assert unfinished.exists() == is_kept


READ_ONLY = """
import logging, os, sys
from pathlib import Path
from inset.media.download_cache import CachedDownload, DownloadCache
from inset.media.ref import MediaRef
from inset.media.stream import Validators
logging.basicConfig(format="%(message)s")
if os.getuid() == 0:
    os.setuid(65534)
cache = DownloadCache(Path(sys.argv[1]), max_bytes=1 << 20, max_age_seconds=1000)
assert cache.find("http://a/").data == b"bytes"
for number in range(3):
    cache.store(f"http://b/{number}", b"other", Validators())
    cache.renew("http://a/", CachedDownload(b"bytes", Validators()))
    cache.drop(b"bytes")
assert cache.find("http://a/").data == b"bytes"
"""


def test_read_only_folder_serves_what_it_has_and_says_once_that_it_keeps_nothing() -> None:
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name) / "cache"
        make_cache(folder).store("http://a/", b"bytes", NONE)
        for path in (Path(name), *folder.rglob("*"), folder):
            path.chmod(0o555 if path.is_dir() else 0o444)
        seen = subprocess.run([sys.executable, "-c", READ_ONLY, str(folder)], capture_output=True, text=True, timeout=60)
        for path in (Path(name), folder, folder / "contents", folder / "entries"):
            path.chmod(0o755)
    assert seen.returncode == 0, seen.stderr
    assert seen.stderr.count("--download-cache-dir cannot be written (EACCES)") == 1
    assert name not in seen.stderr


def test_folder_that_cannot_be_made_is_said_once(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    (tmp_path / "file").write_bytes(b"")
    cache = make_cache(tmp_path / "file" / "cache")
    for _ in range(2):
        cache.store("http://a/", PICTURE, NONE)
        assert cache.find("http://a/") is None
    assert [record.getMessage().count("ENOTDIR") for record in caplog.records] == [1]
