"""What passes between a connector and the core: the limits of one attempt, and the bytes that it brings."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterable, AsyncIterator, Awaitable, Callable
from dataclasses import dataclass

from inset.errors import MediaFetchError, TooLargeError, TransientFetchError

__all__ = ["ByteStream", "FetchLimits", "Validators", "check_chunks", "close_quietly", "read_stream"]

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Validators:
    """What a server gave so that it can be asked later whether the bytes are still the same; None where it gave none.

    Attributes:
        etag: The ETag header.
        last_modified: The Last-Modified header.
        source: What gave them, where one URL may lead to several places, as with redirects; they mean nothing to any other.
    """

    etag: str | None = None
    last_modified: str | None = None
    source: str | None = None

    def __bool__(self) -> bool:
        return self.etag is not None or self.last_modified is not None


@dataclass(frozen=True, slots=True, kw_only=True)
class FetchLimits:
    """The limits of one attempt. The core holds them whatever a connector does; a connector that knows better refuses earlier.

    Attributes:
        max_bytes: Most bytes of the item, after transfer decoding.
        timeout_seconds: What is left for this attempt, in seconds.
        validators: Given where the core has the bytes already: a connector that finds them unchanged may say so instead.
    """

    max_bytes: int
    timeout_seconds: float
    validators: Validators | None = None

    def check_size(self, num_bytes: int) -> None:
        """Lets a size pass that is within the limit; call it when a size is stated before any byte is read.

        Raises:
            TooLargeError: It is not.
        """
        if num_bytes > self.max_bytes:
            raise TooLargeError(f"The item has {num_bytes} bytes or more; {self.max_bytes} are allowed.", stage="fetch")


@dataclass(slots=True, kw_only=True)
class ByteStream:
    """The bytes of one item on their way; made by a connector, read, counted, timed and closed by the core.

    Attributes:
        chunks: The bytes in order, best in pieces of 64 KiB to 1 MiB. An async generator is closed with the stream.
        num_bytes: How many bytes `chunks` will give, where that is known; another number that arrives is an error.
        validators: Kept beside the bytes in the download cache.
        is_unchanged: The bytes that `FetchLimits.validators` stand for are still good; `chunks` is not read.
        is_storable: Whether the download cache may keep the bytes.
        close: Frees what the stream holds; called once, also after a failure.
    """

    chunks: AsyncIterable[bytes]
    num_bytes: int | None = None
    validators: Validators | None = None
    is_unchanged: bool = False
    is_storable: bool = True
    close: Callable[[], Awaitable[None]] | None = None

    async def aclose(self) -> None:
        """Closes the chunks and the stream."""
        try:
            aclose = getattr(self.chunks, "aclose", None)
            if aclose is not None:
                await aclose()
        finally:
            close, self.close = self.close, None
            if close is not None:
                await close()


async def close_quietly(close: Callable[[], Awaitable[None]], what: str, *, timeout_seconds: float) -> None:
    """Closes what belongs to a connector; a close that fails, hangs or ends the process is logged, and harms nothing else.

    Args:
        close: Called once.
        what: Names it in the log.
        timeout_seconds: How long it may take.
    """
    try:
        async with asyncio.timeout(timeout_seconds):
            await close()
    except (asyncio.CancelledError, GeneratorExit):
        raise
    except BaseException as error:  # also SystemExit, which would end the loop of all connectors
        _log.warning("%s could not be closed: %s.", what, type(error).__name__)


async def no_chunks() -> AsyncIterator[bytes]:
    """Gives nothing: the chunks of a stream that is unchanged."""
    nothing: tuple[bytes, ...] = ()
    for chunk in nothing:
        yield chunk


async def read_stream(stream: ByteStream, limits: FetchLimits, where: str, on_progress: Callable[[int], None]) -> bytes:
    """Reads a stream to its end, within the limits, and returns its bytes.

    Args:
        stream: Not closed here.
        limits: Those of the attempt; its time is the caller's to hold.
        where: Scheme and host, for messages.
        on_progress: Told the number of bytes that have arrived, after each chunk.

    Raises:
        TooLargeError: The stream says that it has, or has, more than is allowed; the rest is not read.
        TransientFetchError: Another number of bytes arrived than the stream had said.
        MediaFetchError: The stream is empty.
    """
    data = b"".join([chunk async for chunk in check_chunks(stream, limits, where, on_progress)])
    if not data:
        raise MediaFetchError(f"{where}: the answer is empty.", stage="fetch")
    return data


async def check_chunks(stream: ByteStream, limits: FetchLimits, where: str, on_progress: Callable[[int], None]) -> AsyncIterator[bytes]:
    """Gives the chunks of a stream as they arrive, within the limits; arguments and errors are those of `read_stream`."""
    if stream.num_bytes is not None:
        limits.check_size(stream.num_bytes)
    num_bytes = 0
    async for chunk in stream.chunks:
        num_bytes += memoryview(chunk).nbytes
        limits.check_size(num_bytes)
        on_progress(num_bytes)
        yield bytes(chunk)  # a copy of what its owner could write over, and of nothing else
    if stream.num_bytes is not None and num_bytes != stream.num_bytes:
        raise TransientFetchError(f"{where}: {num_bytes} bytes arrived of {stream.num_bytes} that were announced.")
