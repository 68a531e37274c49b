"""Downloads on disk: content-addressed, bounded in size and age, shared by several processes. Off unless a folder is named."""

from __future__ import annotations

import errno
import fcntl
import hashlib
import json
import logging
import os
import re
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Final

from inset.config import MediaConfig
from inset.media.stream import Validators

__all__ = ["CachedDownload", "DownloadCache", "Payload"]

_log = logging.getLogger(__name__)

SWEPT_SHARE: Final = 0.9
"""How much of a full cache is left, with what is about to be stored, when it has been swept."""

ENTRY_BYTES: Final = 4096
"""What any file costs at least: one block on disk."""

_DIGEST: Final = re.compile(r"[0-9a-f]{64}")

_UNFINISHED: Final = "new-"
_ABANDONED_SECONDS: Final = 3600.0
"""After this long, a file that was never renamed is one that its writer left behind when it died."""

LOCK_TRIES: Final = 250
LOCK_PAUSE_SECONDS: Final = 0.002


@dataclass(frozen=True, slots=True)
class CachedDownload:
    """What the cache knows behind a URL.

    Attributes:
        data: The bytes, verified against their digest.
        validators: What the server gave to ask again with; empty where it gave nothing.
    """

    data: bytes
    validators: Validators


class Payload:
    """The bytes of one item, and what becomes of them in the download cache; may be shared by several callers."""

    def __init__(
        self,
        data: bytes,
        *,
        url_text: str,
        validators: Validators | None = None,
        cache: DownloadCache | None = None,
        is_stored: bool = False,
    ) -> None:
        self.data = data
        self._url_text = url_text
        self._validators = validators or Validators()
        self._cache = cache
        self._is_stored = is_stored
        self._lock = threading.Lock()

    def store(self) -> None:
        """Keeps the bytes, once; called when their header has been probed."""
        if self._cache is None:
            return
        with self._lock:
            is_stored, self._is_stored = self._is_stored, True
        if not is_stored:
            self._cache.store(self._url_text, self.data, self._validators)

    def drop(self) -> None:
        """Forgets the bytes; called when they turn out not to be media, or to be damaged."""
        if self._cache is not None and self._is_stored:
            self._cache.drop(self.data)


class DownloadCache:
    """A folder with contents under their sha256, and entries that lead from the digest of a URL to a content.

    Files appear by renaming, so that a reader sees all of one or nothing. A lock file holds the size of everything, and whoever exceeds it
    removes what was used longest ago. A folder that cannot be written serves what it has. Nothing in it shows a URL.
    """

    def __init__(self, folder: Path, *, max_bytes: int, max_age_seconds: float) -> None:
        """Makes a cache; folders are made with the first download.

        Args:
            folder: Belongs to this cache alone.
            max_bytes: Size on disk; what is larger is not kept.
            max_age_seconds: Since the server was last asked; what is older is fetched again.
        """
        self._contents = folder / "contents"
        self._entries = folder / "entries"
        self._lock_file = folder / "size"
        self._max_bytes = max_bytes
        self._max_age_seconds = max_age_seconds
        self._has_warned = False

    @classmethod
    def from_config(cls, config: MediaConfig) -> DownloadCache | None:
        """Returns the cache that the options ask for, or None when they name no folder."""
        if config.download_cache_dir is None:
            return None
        return cls(config.download_cache_dir, max_bytes=config.download_cache_bytes, max_age_seconds=config.download_cache_age_seconds)

    def find(self, url_text: str) -> CachedDownload | None:
        """Returns what is cached behind a URL, or None; blocks on the disk."""
        entry = self._entries / _digest(url_text.encode())
        try:
            known = json.loads(entry.read_bytes())
            age = time.time() - float(known["asked_at"])
            if not 0 <= age <= self._max_age_seconds:
                return None
            content = self._contents / _check_digest(known["sha256"])
            validators = Validators(*(_check_text(known[name]) for name in ("etag", "last_modified", "source")))
            data = content.read_bytes()
        except (OSError, ValueError, KeyError, TypeError):
            return None
        if _digest(data) != content.name:
            self._remove(content)
            return None
        for path in (content, entry):
            self._touch(path)
        return CachedDownload(data, validators)

    def store(self, url_text: str, data: bytes, validators: Validators) -> None:
        """Keeps bytes behind a URL, or does nothing where the folder cannot be written; blocks on the disk."""
        cost = max(len(data), ENTRY_BYTES)
        if not data or cost + ENTRY_BYTES > self._max_bytes:
            return
        try:
            for folder in (self._contents, self._entries):
                folder.mkdir(parents=True, exist_ok=True, mode=0o700)
            content = self._contents / _digest(data)
            if not self._reserve(ENTRY_BYTES if content.exists() else cost + ENTRY_BYTES):
                return
            self._write(content, data)
            self._write_entry(url_text, content.name, validators)
        except OSError as error:
            self._warn(error)

    def renew(self, url_text: str, known: CachedDownload) -> None:
        """Notes that the server was asked and that its bytes have not changed."""
        try:
            self._write_entry(url_text, _digest(known.data), known.validators)
        except OSError as error:
            self._warn(error)

    def drop(self, data: bytes) -> None:
        """Forgets bytes behind whatever URL, because they do not decode."""
        self._remove(self._contents / _digest(data))

    def _write_entry(self, url_text: str, content: str, validators: Validators) -> None:
        known = {"sha256": content, **asdict(validators), "asked_at": time.time()}
        self._write(self._entries / _digest(url_text.encode()), json.dumps(known).encode())

    def _write(self, path: Path, data: bytes) -> None:
        with tempfile.NamedTemporaryFile(dir=path.parent, prefix=_UNFINISHED, delete=False) as file:
            try:
                file.write(data)
                file.flush()
                Path(file.name).replace(path)
            except BaseException:
                self._remove(Path(file.name))
                raise

    def _reserve(self, num_bytes: int) -> bool:
        """Counts bytes that are about to be written, and makes room for them; tells whether there is room."""
        with self._locked() as descriptor:
            if descriptor is None:
                return False
            try:
                size = int(os.pread(descriptor, 32, 0))
            except ValueError:
                size = self._max_bytes  # new, or not written to the end: count again
            if size + num_bytes > self._max_bytes:
                # Further than needed, so that not every store into a full cache looks at every file.
                size = self._sweep(int(self._max_bytes * SWEPT_SHARE) - num_bytes)
            # Always of one length, and never empty in between: who is killed here leaves a number.
            os.pwrite(descriptor, b"%020d" % (size + num_bytes), 0)
            os.ftruncate(descriptor, 20)
        return True

    @contextmanager
    def _locked(self) -> Iterator[int | None]:
        descriptor = os.open(self._lock_file, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            yield descriptor if _take_lock(descriptor) else None
        finally:
            os.close(descriptor)

    def _sweep(self, max_bytes: int) -> int:
        """Removes what is too old, then what was used longest ago, until the rest fits; returns its size."""
        files = sorted(_scan(self._contents, self._entries))
        size = sum(cost for _, cost, _ in files)
        too_old = time.time() - self._max_age_seconds
        for used_at, cost, path in files:
            if used_at >= too_old and size <= max_bytes:
                break
            self._remove(path)
            size -= cost
        return size

    def _remove(self, path: Path) -> None:
        try:
            path.unlink(missing_ok=True)
        except OSError as error:
            self._warn(error)

    def _touch(self, path: Path) -> None:
        try:
            os.utime(path)
        except FileNotFoundError:
            pass  # another process removed it meanwhile
        except OSError as error:
            self._warn(error)

    def _warn(self, error: OSError) -> None:
        if not self._has_warned:
            self._has_warned = True
            reason = errno.errorcode.get(error.errno or 0, type(error).__name__)
            _log.warning("The folder of --download-cache-dir cannot be written (%s): downloads are not cached from now on.", reason)


def _digest(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


def _check_digest(value: object) -> str:
    if isinstance(value, str) and _DIGEST.fullmatch(value):
        return value
    raise ValueError("not a digest")


def _check_text(value: object) -> str | None:
    if value is None or isinstance(value, str):
        return value
    raise ValueError("not a header")


def _take_lock(descriptor: int) -> bool:
    for _ in range(LOCK_TRIES):
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            time.sleep(LOCK_PAUSE_SECONDS)
        else:
            return True
    return False  # a process that was stopped with the lock in hand must not stop the others


def _scan(*folders: Path) -> Iterator[tuple[float, int, Path]]:
    for folder in folders:
        for item in os.scandir(folder):
            try:
                status = item.stat(follow_symlinks=False)
            except FileNotFoundError:
                continue
            is_being_written = item.name.startswith(_UNFINISHED) and time.time() - status.st_mtime < _ABANDONED_SECONDS
            if not is_being_written:
                yield status.st_mtime, max(status.st_size, ENTRY_BYTES), Path(item.path)
