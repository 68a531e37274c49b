"""Whatever fsspec reaches, by protocols that the operator lists: ``fsspec+sftp://host/path``."""

from __future__ import annotations

import asyncio
from collections.abc import Generator, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any, ClassVar, Final, NamedTuple

from inset.api import ByteStream, ConfigError, FetchLimits, MediaConnector, MediaFetchError, MediaPolicyError, MediaUrl, MissingExtraError
from inset_connectors.paths import decode_path
from inset_connectors.pieces import PIECE_BYTES, pull

__all__ = ["FilesystemConnector"]

PREFIX: Final = "fsspec+"
ASYNC_THREADS: Final = 8
"""Threads of a protocol whose client may be used by several; others have one."""

_REFUSED_PROTOCOLS: Final = frozenset({"file", "http", "https", "local"})
_REFUSED_CLASSES: Final = frozenset(
    {
        "fsspec.archive.AbstractArchiveFileSystem",
        "fsspec.generic.GenericFileSystem",
        "fsspec.implementations.cached.CachingFileSystem",
        "fsspec.implementations.chained.ChainedFileSystem",
        "fsspec.implementations.dirfs.DirFileSystem",
        "fsspec.implementations.http.HTTPFileSystem",
        "fsspec.implementations.http_sync.HTTPFileSystem",
        "fsspec.implementations.local.LocalFileSystem",
        "fsspec.implementations.reference.ReferenceFileSystem",
    }
)
"""What reads this machine's files, dials for the core, or opens further URLs on its own: all of it would walk around the core's rules."""


class _Protocol(NamedTuple):
    """One enabled protocol.

    Attributes:
        client_class: fsspec's class.
        options: What the operator gives it.
    """

    client_class: Any
    options: Mapping[str, Any]


class FilesystemConnector(MediaConnector):
    """Serves ``fsspec+PROTOCOL://...`` with fsspec's clients, in threads, each made once with the operator's options.

    A URL chooses a path and nothing else: one that would change how the client connects, such as another host, is refused.
    """

    schemes: ClassVar[tuple[str, ...]] = (PREFIX + "*",)

    def __init__(self, *, protocols: Mapping[str, Mapping[str, Any]] | None = None) -> None:
        """Takes the operator's options.

        Args:
            protocols: Protocol -> storage options of its client.

        Raises:
            MissingExtraError: fsspec, or what it needs for a protocol, is not installed.
            ConfigError: No protocol is given, or one that is not known or would walk around the core's rules.
        """
        if not isinstance(protocols, Mapping) or not protocols:
            message = 'The media connector \'fsspec\' needs the option protocols, such as {"sftp": {"host": "files.example"}}.'
            raise ConfigError(message)
        self._protocols = {name: _Protocol(_find_class(name), dict(options)) for name, options in protocols.items()}
        self._clients: dict[str, Any] = {}
        self._threads: dict[str, ThreadPoolExecutor] = {}

    async def aopen(self) -> None:
        """Makes the threads; a client is made in them, when its first URL comes."""
        for name, protocol in self._protocols.items():
            num_threads = ASYNC_THREADS if protocol.client_class.async_impl else 1
            self._threads[name] = ThreadPoolExecutor(num_threads, thread_name_prefix=f"inset-fsspec-{name}")

    async def aclose(self) -> None:
        """Lets go of clients and threads; a call that hangs is left behind."""
        for threads in self._threads.values():
            threads.shutdown(wait=False, cancel_futures=True)
        self._clients.clear()

    async def open(self, url: MediaUrl, limits: FetchLimits) -> ByteStream:
        """Returns the bytes of a file.

        Raises:
            MediaPolicyError: The protocol is not enabled, or the URL says how to connect, or chains protocols.
            MediaFetchError: There is no such file, or it may not be read.
        """
        name = url.scheme.removeprefix(PREFIX)
        if name not in self._protocols:
            message = f"{url.where}: the protocol is not enabled; the operator's option protocols names those that are."
            raise MediaPolicyError(message, stage="fetch")
        path = self._find_path(name, url)
        threads = self._threads[name]
        size, pieces = await asyncio.get_running_loop().run_in_executor(threads, self._start, name, path, url.where)
        return ByteStream(chunks=pull(pieces, executor=threads), num_bytes=size)

    def _find_path(self, name: str, url: MediaUrl) -> str:
        authority, slash, encoded = url.text.partition("://")[2].partition("/")
        if not slash or "?" in encoded or "::" in url.text:
            raise MediaPolicyError(f"{url.where}: write {PREFIX}PROTOCOL://HOST/PATH, without a query or ::.", stage="fetch")
        path = decode_path(encoded, url.where)
        if "::" in path:
            raise MediaPolicyError(f"{url.where}: chained protocols are not opened.", stage="fetch")
        text = f"{name}://{authority}/{path}"
        client_class, options = self._protocols[name]
        if any(options.get(key) != value for key, value in client_class._get_kwargs_from_urls(text).items()):  # noqa: SLF001  # fsspec's way
            raise MediaPolicyError(f"{url.where}: the operator's option protocols says how to connect, a URL may not.", stage="fetch")
        return str(client_class._strip_protocol(text))  # noqa: SLF001  # fsspec's way for those who make clients

    def _start(self, name: str, path: str, where: str) -> tuple[int | None, Generator[bytes, None, None]]:
        """Returns the size, where it is known, and the bytes; blocks."""
        with _translated(where):
            client = self._clients.get(name)
            if client is None:
                client_class, options = self._protocols[name]
                client = self._clients.setdefault(name, client_class(skip_instance_cache=True, **options))
            info = client.info(path)
        if info.get("type") != "file":
            raise MediaFetchError(f"{where}: that is no file.", stage="fetch")
        return info.get("size"), _read(client, path, where)


def _find_class(protocol: str) -> Any:
    try:
        import fsspec
    except ImportError as error:
        message = "The media connector 'fsspec' needs fsspec: pip install 'inset-connectors[fsspec]'."
        raise MissingExtraError(message) from error
    try:
        client_class = fsspec.get_filesystem_class(protocol)
    except ImportError as error:
        raise MissingExtraError(f"The media connector 'fsspec' cannot serve {protocol!r}: {error}.") from error
    except ValueError as error:
        raise ConfigError(f"The media connector 'fsspec' cannot serve {protocol!r}: fsspec does not know it.") from error
    names = {f"{base.__module__}.{base.__qualname__}" for base in client_class.__mro__}
    if protocol in _REFUSED_PROTOCOLS or names & _REFUSED_CLASSES:
        message = f"The media connector 'fsspec' does not serve {protocol!r}, because it would walk around the rules for files and hosts."
        raise ConfigError(message)
    return client_class


def _read(client: Any, path: str, where: str) -> Generator[bytes, None, None]:
    with _translated(where), client.open(path, "rb") as file:
        while piece := file.read(PIECE_BYTES):
            yield piece


@contextmanager
def _translated(where: str) -> Iterator[None]:
    """Turns what will not pass into our error; other OSErrors are tried again."""
    try:
        yield
    except (FileNotFoundError, IsADirectoryError, NotADirectoryError):
        raise MediaFetchError(f"{where}: there is no such file.", stage="fetch") from None
    except PermissionError:
        raise MediaFetchError(f"{where}: the file may not be read.", stage="fetch") from None
