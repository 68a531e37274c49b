"""Tries to fetch one item: time-outs that grow, pauses between attempts, and a deadline over all of them."""

from __future__ import annotations

import asyncio
import logging
import random
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, replace
from typing import Final

from inset.config import MediaConfig
from inset.errors import InsetError, MediaFetchError, MediaTimeoutError, TransientFetchError
from inset.media.connector import MediaConnector
from inset.media.download_cache import CachedDownload, DownloadCache, Payload
from inset.media.stream import ByteStream, FetchLimits, check_chunks, close_quietly, read_stream
from inset.media.url import MediaUrl

__all__ = ["FetchTimes", "download", "open_inner"]

_log = logging.getLogger(__name__)

TIMEOUT_GROWTH: Final = 4.0
FIRST_PAUSE_SECONDS: Final = 0.1
CLOSE_SECONDS: Final = 1.0

_on_progress: ContextVar[Callable[[int], None]] = ContextVar("_on_progress")
"""Whoever counts the bytes of the download that runs, for what its connector reads through another one."""


@dataclass(frozen=True, slots=True)
class FetchTimes:
    """How long fetching an item may take.

    Attributes:
        timeout_seconds: Of the first attempt; each further one has four times as long.
        deadline_seconds: Of all attempts and pauses together.
        max_attempts: How often it is tried.
    """

    timeout_seconds: float
    deadline_seconds: float
    max_attempts: int

    @classmethod
    def of(cls, config: MediaConfig, modality: str) -> FetchTimes:
        """Returns the times of a modality; one that the core does not know has those of a video."""
        timeout, deadline = {
            "image": (config.image_fetch_timeout_seconds, config.image_fetch_deadline_seconds),
            "audio": (config.audio_fetch_timeout_seconds, config.audio_fetch_deadline_seconds),
        }.get(modality, (config.video_fetch_timeout_seconds, config.video_fetch_deadline_seconds))
        return cls(timeout, deadline, config.max_fetch_attempts)


@dataclass(slots=True)
class _Job:
    """What stays the same over all attempts of one item."""

    connector: MediaConnector
    url: MediaUrl
    limits: FetchLimits
    cache: DownloadCache | None
    on_progress: Callable[[int], None]
    known: CachedDownload | None = None


async def download(
    connector: MediaConnector,
    url: MediaUrl,
    limits: FetchLimits,
    *,
    times: FetchTimes,
    cache: DownloadCache | None,
    on_progress: Callable[[int], None],
) -> Payload:
    """Returns the bytes behind a URL, from the download cache or through its connector.

    Args:
        connector: Opened already.
        url: Checked already.
        limits: Those of the first attempt; their time and validators are set here.
        times: How long it may take.
        cache: None where the operator or the connector wants none.
        on_progress: Told how many bytes have arrived in this attempt.

    Raises:
        MediaTimeoutError: The deadline passed, or the last attempt ran out of time.
        MediaFetchError: It failed for good, or too often.
    """
    _on_progress.set(on_progress)
    job = _Job(connector, url, limits, cache if connector.is_cacheable else None, on_progress)
    if job.cache is not None:
        job.known = await asyncio.to_thread(job.cache.find, url.text)
        if job.known is not None and not job.known.validators:
            return _reuse(job, job.known)
    validators = None if job.known is None else job.known.validators
    loop = asyncio.get_running_loop()
    deadline = loop.time() + times.deadline_seconds
    attempt = 0
    while True:
        left = deadline - loop.time()
        timeout = min(times.timeout_seconds * TIMEOUT_GROWTH**attempt, left)
        try:
            async with asyncio.timeout(timeout):
                return await _attempt(job, replace(limits, timeout_seconds=timeout, validators=validators))
        except (TransientFetchError, OSError) as error:  # TimeoutError is an OSError
            failure = _describe(error, url)
        attempt += 1
        pause = _pause_seconds(failure, attempt)
        if attempt >= times.max_attempts or loop.time() + pause >= deadline:
            raise _give_up(failure, attempt) from failure
        await asyncio.sleep(pause)


async def open_inner(connector: MediaConnector, url: MediaUrl, limits: FetchLimits) -> ByteStream:
    """Opens a connector on behalf of another one; the limits hold for its chunks, and its bytes count for the download that runs.

    Args:
        connector: Opened already.
        url: Checked already.
        limits: What the other one allows.
    """
    stream = _check_stream(await connector.open(url, limits), url)
    chunks = check_chunks(stream, limits, url.where, _on_progress.get())
    return replace(stream, chunks=chunks, close=stream.aclose)


async def _attempt(job: _Job, limits: FetchLimits) -> Payload:
    with _guard(job):
        stream = _check_stream(await job.connector.open(job.url, limits), job.url)
    try:
        if stream.is_unchanged:
            if job.known is None or job.cache is None:
                raise MediaFetchError(f"{job.url.where}: the connector says unchanged, but nothing is known.", stage="fetch")
            await asyncio.to_thread(job.cache.renew, job.url.text, job.known)
            return _reuse(job, job.known)
        with _guard(job):
            data = await read_stream(stream, limits, job.url.where, job.on_progress)
    finally:
        await close_quietly(stream.aclose, f"A stream of the connector {type(job.connector).__name__}", timeout_seconds=CLOSE_SECONDS)
    return Payload(data, url_text=job.url.text, validators=stream.validators, cache=job.cache if stream.is_storable else None)


def _reuse(job: _Job, known: CachedDownload) -> Payload:
    job.limits.check_size(len(known.data))
    job.on_progress(len(known.data))
    return Payload(known.data, url_text=job.url.text, cache=job.cache, is_stored=True)


@contextmanager
def _guard(job: _Job) -> Iterator[None]:
    try:
        yield
    except (InsetError, OSError, asyncio.CancelledError, GeneratorExit):
        raise
    except BaseException as error:  # also SystemExit, which would end the loop of all connectors
        _log.warning("The connector %s failed with %s.", type(job.connector).__name__, type(error).__name__)
        message = f"The connector for {job.url.scheme}: failed ({type(error).__name__})."
        raise MediaFetchError(message, code="connector_failed", stage="fetch") from error


def _check_stream(stream: object, url: MediaUrl) -> ByteStream:
    if not isinstance(stream, ByteStream):
        message = f"The connector for {url.scheme}: gave a {type(stream).__name__}, not a ByteStream."
        raise MediaFetchError(message, code="connector_failed", stage="fetch")
    return stream


def _describe(error: TransientFetchError | OSError, url: MediaUrl) -> MediaFetchError:
    if isinstance(error, TransientFetchError):
        return error
    if isinstance(error, TimeoutError):
        return MediaTimeoutError(f"{url.where}: did not answer, or not to the end, in time.", stage="fetch")
    return TransientFetchError(f"{url.where}: the connection failed ({type(error).__name__}).")


def _pause_seconds(failure: MediaFetchError, attempt: int) -> float:
    asked = failure.retry_after_seconds if isinstance(failure, TransientFetchError) else None
    return max(asked or 0.0, FIRST_PAUSE_SECONDS * TIMEOUT_GROWTH ** (attempt - 1) * random.uniform(0.5, 1.5))


def _give_up(failure: MediaFetchError, num_attempts: int) -> MediaFetchError:
    kind = MediaTimeoutError if isinstance(failure, MediaTimeoutError) else MediaFetchError
    times = "once" if num_attempts == 1 else f"{num_attempts} times"
    return kind(f"{failure.message} Tried {times}.", stage="fetch")
