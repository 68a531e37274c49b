"""Files of a local Hugging Face cache, by repository and revision: ``hf-cache:datasets/ORG/NAME@REVISION/PATH``. Nothing is downloaded."""

from __future__ import annotations

import asyncio
import errno
import os
import re
from collections.abc import Sequence
from pathlib import Path
from typing import ClassVar, Final, NamedTuple
from urllib.parse import unquote

from inset.api import (
    ByteStream,
    ConfigError,
    FetchLimits,
    MediaConnector,
    MediaFetchError,
    MediaPolicyError,
    MediaUrl,
    open_below,
    read_file,
)
from inset_connectors.pieces import give

__all__ = ["HubCacheConnector"]

_KINDS: Final = ("datasets", "models", "spaces")
_NAME: Final = re.compile(r"[A-Za-z0-9_][A-Za-z0-9._-]*")
_COMMIT: Final = re.compile(r"[0-9a-f]{40}")
_BLOB_LINK: Final = re.compile(rb"(?:\.\./)+blobs/([0-9a-f]{40}|[0-9a-f]{64})")


class _Place(NamedTuple):
    """What a URL names.

    Attributes:
        repo: ``datasets/ORG/NAME``, the organisation left out where there is none.
        revision: Branch, tag or commit.
        path: Components of the file's path.
    """

    repo: str
    revision: str
    path: tuple[str, ...]


class HubCacheConnector(MediaConnector):
    """Serves ``hf-cache:KIND/NAME@REVISION/PATH``, where KIND is models, datasets or spaces.

    Only what is in the cache already can be had. The path is walked without following links, except for the last one, which the cache makes
    itself and which must lead to a blob of the same repository.

    Source: the layout of ``huggingface_hub``'s cache (refs, snapshots, blobs).
    """

    schemes: ClassVar[tuple[str, ...]] = ("hf-cache",)

    def __init__(self, *, repos: Sequence[str] = (), folder: str | None = None) -> None:
        """Takes the operator's options.

        Args:
            repos: Which repositories may be read, such as ``datasets/ORG/NAME``; ``*`` alone stands for all of them.
            folder: Where the cache lies; as ``HF_HUB_CACHE`` and ``HF_HOME`` say when None.

        Raises:
            ConfigError: No repository is named.
        """
        if isinstance(repos, str) or not repos:
            message = "The media connector 'hf-cache' needs the option repos: repositories such as 'datasets/ORG/NAME', or '*' alone."
            raise ConfigError(message)
        self._repos = frozenset(repos)
        self._folder = _find_cache() if folder is None else Path(folder)

    async def open(self, url: MediaUrl, limits: FetchLimits) -> ByteStream:
        """Returns the bytes of a cached file.

        Raises:
            MediaPolicyError: The repository is not allowed, or the path is none of this form.
            TooLargeError: The file is over the limit.
            MediaFetchError: The repository, revision or file is not in the cache.
        """
        place = _parse(url)
        if not {"*", place.repo} & self._repos:
            raise MediaPolicyError(
                f"{url.where}: the repository is not allowed; the operator's option repos names those that are.", stage="fetch"
            )
        pieces = await asyncio.to_thread(_read, self._folder, place, limits)
        return ByteStream(chunks=give(pieces))


def _find_cache() -> Path:
    """Returns the folder where huggingface_hub keeps its cache."""
    environment = os.environ
    if "HF_HUB_CACHE" in environment:
        return Path(environment["HF_HUB_CACHE"]).expanduser()
    default = Path(environment.get("XDG_CACHE_HOME", "~/.cache")) / "huggingface"
    return Path(environment.get("HF_HOME", default)).expanduser() / "hub"


def _parse(url: MediaUrl) -> _Place:
    wrong = MediaPolicyError(
        f"{url.where}: write hf-cache:KIND/NAME@REVISION/PATH, where KIND is one of {', '.join(_KINDS)}.", stage="fetch"
    )
    if url.host is not None:
        raise wrong
    repo, _, rest = url.text.removeprefix("hf-cache:").lstrip("/").partition("@")
    kind, *names = repo.split("/")
    revision, *path = [unquote(part, errors="replace") for part in rest.split("/")]
    if kind not in _KINDS or not 1 <= len(names) <= 2 or not all(_NAME.fullmatch(name) and "--" not in name for name in names):
        raise wrong
    for part in (*revision.split("/"), *path):
        if part in ("", ".", "..") or any(mark in part for mark in "\0\\\ufffd"):
            raise wrong
    if not path or any("/" in part for part in path):
        raise wrong
    return _Place(repo, revision, tuple(path))


def _read(cache: Path, place: _Place, limits: FetchLimits) -> list[bytes]:
    root = cache / place.repo.replace("/", "--")
    try:
        commit = place.revision if _COMMIT.fullmatch(place.revision) else _read_ref(root, place.revision)
        snapshot = [os.fsencode(part) for part in ("snapshots", commit, *place.path)]
        try:
            descriptor = open_below(root, snapshot)
        except OSError as error:
            if error.errno != errno.ELOOP:
                raise
            descriptor = open_below(root, [b"blobs", _find_blob(root, snapshot)])
        return read_file(descriptor, limits)
    except OSError as error:
        raise _refuse(error) from None  # its text holds the path


def _read_ref(root: Path, revision: str) -> str:
    limits = FetchLimits(max_bytes=64, timeout_seconds=1.0)
    text = b"".join(read_file(open_below(root, [b"refs", *map(os.fsencode, revision.split("/"))]), limits))
    commit = text.decode("ascii", "replace").strip()
    if not _COMMIT.fullmatch(commit):
        raise MediaFetchError("The cache does not know which commit the revision is.", stage="fetch")
    return commit


def _find_blob(root: Path, snapshot: Sequence[bytes]) -> bytes:
    """Returns the name of the blob that a link of a snapshot leads to; the link itself is never followed."""
    match = _BLOB_LINK.fullmatch(os.fsencode(root.joinpath(*map(os.fsdecode, snapshot)).readlink()))
    if match is None:
        raise MediaPolicyError("The file in the cache is a link that leads out of its repository.", stage="fetch")
    return match[1]


def _refuse(error: OSError) -> MediaFetchError | MediaPolicyError:
    if error.errno in (errno.ELOOP, errno.ENOTDIR):
        return MediaPolicyError("The path leads over a link, or over a file as if it were a folder.", stage="fetch")
    if error.errno in (errno.ENOENT, errno.ENAMETOOLONG, errno.EINVAL):
        return MediaFetchError("The cache has no such file at that revision.", stage="fetch")
    return MediaFetchError(f"The file cannot be read ({errno.errorcode.get(error.errno or 0, 'unknown')}).", stage="fetch")
