"""Fetches media for a core: dispatch by scheme, policy, limits, attempts, single-flight, download cache."""

from __future__ import annotations

import asyncio
import concurrent.futures
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future
from contextlib import contextmanager, nullcontext
from dataclasses import replace
from functools import partial
from typing import Any, Final, NamedTuple, Self, TypeVar

from inset.config import MediaConfig
from inset.errors import InsetError, InvariantError, MediaTimeoutError, OverloadedError
from inset.media.attempts import FetchTimes, download, open_inner
from inset.media.budget import RequestBudget
from inset.media.connector import ConnectorContext, FetchSurface, MediaConnector
from inset.media.connector_set import ConnectorSet
from inset.media.download_cache import DownloadCache, Payload
from inset.media.executor import MediaExecutor
from inset.media.fetch_places import FetchPlaces
from inset.media.gather import gather_or_cancel
from inset.media.http import HttpClient
from inset.media.io import MediaIO
from inset.media.look_ups import Resolve, look_up
from inset.media.media_loop import MediaLoop
from inset.media.policy import MediaPolicy
from inset.media.ref import MediaRef
from inset.media.single_flight import Meter, SingleFlight
from inset.media.stream import ByteStream, FetchLimits
from inset.media.url import MediaUrl
from inset.registry import MediaConnectorRegistry

__all__ = ["FetchItem", "MediaFetcher"]

T = TypeVar("T")

GRACE_SECONDS: Final = 2.0
"""How much longer than the deadline a caller waits for the media loop, which a careless connector may have blocked."""


class FetchItem(NamedTuple):
    """One item of a request.

    Attributes:
        url: Where it is.
        media_ios: Its decoders; the first one's modality decides the time-outs and stands in errors.
    """

    url: str
    media_ios: tuple[MediaIO[Any], ...]


class MediaFetcher(FetchSurface):
    """The connectors of one core with everything that holds for all of them.

    Owns one thread for its event loop, its connectors, and its executor unless one is lent. Callers of any thread and any loop may use it.
    """

    def __init__(
        self,
        connectors: ConnectorSet | Iterable[MediaConnector],
        config: MediaConfig,
        *,
        executor: MediaExecutor | None = None,
        resolve: Resolve = look_up,
    ) -> None:
        """Takes connectors; they belong to this fetcher from now on.

        Args:
            connectors: Of two for one scheme, the first serves it.
            config: The media options.
            executor: Runs probes and digests; one is made, and closed with the fetcher, when None.
            resolve: Looks up the hosts of the core's HTTP client.

        Raises:
            ConfigError: A host in the options is not valid.
        """
        self.config = config
        self._connectors = connectors if isinstance(connectors, ConnectorSet) else ConnectorSet(connectors)
        self._policy = MediaPolicy(config)
        self._http = HttpClient(self._policy, resolve=resolve)
        self._lent_executor = executor
        self._executor = executor or MediaExecutor(image_threads=config.image_threads, video_threads=config.video_threads)
        self._cache = DownloadCache.from_config(config)
        self._flights: SingleFlight[Payload] = SingleFlight()
        self._places = FetchPlaces()
        self._loop = MediaLoop()
        context = ConnectorContext(config, self._policy, self._http, self._open_inner)
        for connector in self._connectors.connectors:
            connector.attach(context, self)

    @classmethod
    def build(cls, registry: MediaConnectorRegistry, config: MediaConfig, *, executor: MediaExecutor | None = None) -> MediaFetcher:
        """Makes a fetcher with the connectors that the options name; see `ConnectorSet.build`."""
        return cls(ConnectorSet.build(registry, config), config, executor=executor)

    def run(self, url: str, media_ios: Sequence[MediaIO[Any]], modality: str, budget: RequestBudget | None) -> tuple[MediaRef[Any], ...]:
        """Fetches once, for one or several decoders, and blocks; see `FetchSurface` for the errors."""
        if self._loop.is_current():
            raise InvariantError("A connector must await the asynchronous form of a fetch, not block the media loop with the other one.")
        probe: Future[tuple[MediaRef[Any], ...]] | None = None
        with _located(modality):
            future = self._loop.submit(self._download(url, media_ios, modality, budget))
            try:
                payload = future.result(self._patience(modality))
                probe = self._probe(modality, media_ios, payload)
                return probe.result(self._patience(modality))
            except concurrent.futures.TimeoutError:
                raise _too_late(modality) if probe is None else _too_busy(modality) from None
            except concurrent.futures.CancelledError:
                raise _stopped() from None
            finally:
                future.cancel()
                if probe is not None:
                    probe.cancel()

    async def run_async(
        self,
        url: str,
        media_ios: Sequence[MediaIO[Any]],
        modality: str,
        budget: RequestBudget | None,
        *,
        on_probed: Callable[[float], object] = lambda seconds: None,
    ) -> tuple[MediaRef[Any], ...]:
        """Fetches once, for one or several decoders; see `FetchSurface` for the errors. Cancelling it cancels the fetch.

        `on_probed` is told the seconds from the last byte to the references.
        """
        probe: asyncio.Future[tuple[MediaRef[Any], ...]] | None = None
        with _located(modality):
            future = asyncio.wrap_future(self._loop.submit(self._download(url, media_ios, modality, budget)))
            try:
                async with asyncio.timeout(self._patience(modality)):  # wait_for loses a cancellation that comes with the result
                    payload = await future
                started = time.perf_counter()
                probe = asyncio.wrap_future(self._probe(modality, media_ios, payload))
                async with asyncio.timeout(self._patience(modality)):
                    refs = await probe
                on_probed(time.perf_counter() - started)
                return refs
            except TimeoutError:
                raise _too_late(modality) if probe is None else _too_busy(modality) from None
            except asyncio.CancelledError:
                task = asyncio.current_task()
                if task is None or task.cancelling():
                    raise
                raise _stopped() from None  # not the caller was cancelled, but what he waited for

    async def fetch_all_async(self, items: Sequence[FetchItem], *, budget: RequestBudget | None = None) -> list[tuple[MediaRef[Any], ...]]:
        """Fetches the items of a request at the same time; the first that fails cancels the others.

        Returns:
            For each item its references, one per decoder, in order.

        Raises:
            ClientError: What the first failing item raised, with its modality and its position among the items of that modality.
        """
        counts: dict[str, int] = {}
        fetches = []
        for item in items:
            modality = item.media_ios[0].modality
            fetches.append(self._fetch_item(item, modality, counts.get(modality, 0), budget))
            counts[modality] = counts.get(modality, 0) + 1
        return await gather_or_cancel(fetches)

    async def _fetch_item(self, item: FetchItem, modality: str, index: int, budget: RequestBudget | None) -> tuple[MediaRef[Any], ...]:
        try:
            return await self.run_async(item.url, item.media_ios, modality, budget)
        except InsetError as error:
            error.locate(item_index=index)
            raise

    @property
    def num_waiting(self) -> int:
        """How many callers wait for bytes at this moment."""
        return self._flights.num_waiting

    def close(self) -> None:
        """Cancels what runs and closes connectors, connections and threads; may be called again."""
        self._loop.close(self._aclose)
        if self._lent_executor is None:
            self._executor.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc_info: object) -> None:
        self.close()

    def _get_fetcher(self) -> MediaFetcher:
        return self

    def _patience(self, modality: str) -> float:
        return FetchTimes.of(self.config, modality).deadline_seconds + GRACE_SECONDS

    async def _download(self, text: str, media_ios: Sequence[MediaIO[Any]], modality: str, budget: RequestBudget | None) -> Payload:
        url = MediaUrl.parse(text)
        connector = self._connectors.find(url)
        self._policy.check_host(url)
        max_bytes = min([self.config.max_item_download_bytes, *(io.get_max_bytes() for io in media_ios)])
        times = FetchTimes.of(self.config, modality)

        async def fetch(on_progress: Callable[[int], None]) -> Payload:
            await self._connectors.ensure_open(connector)
            limits = FetchLimits(max_bytes=max_bytes, timeout_seconds=times.timeout_seconds)
            return await download(connector, url, limits, times=times, cache=self._cache, on_progress=on_progress)

        # Not by modality: a clip whose picture and sound are asked for at the same time is downloaded once.
        key = (url.text, max_bytes) if connector.is_shared else object()
        meter = Meter(budget)
        owner = object() if budget is None else budget
        async with self._places.held(owner, url.host or "") if connector.is_shared else nullcontext():
            while True:
                is_late = self._flights.is_flying(key)
                try:
                    return await self._flights.join(key, fetch, meter=meter)
                except MediaTimeoutError:
                    if not is_late:  # who joined a flight that was under way has time left of its own, until `_patience` ends it
                        raise

    async def _open_inner(self, url: MediaUrl, limits: FetchLimits) -> ByteStream:
        connector = self._connectors.find(url)
        self._policy.check_host(url)
        await self._connectors.ensure_open(connector)
        max_bytes = min(limits.max_bytes, self.config.max_item_download_bytes)
        return await open_inner(connector, url, replace(limits, max_bytes=max_bytes))

    def _probe(self, modality: str, media_ios: Sequence[MediaIO[Any]], payload: Payload) -> Future[tuple[MediaRef[Any], ...]]:
        try:
            return self._executor.submit(modality, partial(self._make_refs, media_ios, payload))
        except OverloadedError:
            raise _stopped() from None

    def _make_refs(self, media_ios: Sequence[MediaIO[Any]], payload: Payload) -> tuple[MediaRef[Any], ...]:
        try:
            refs = tuple(io.load_bytes_ref(payload.data, on_damage=payload.drop) for io in media_ios)
        except InsetError:
            payload.drop()
            raise
        payload.store()
        return refs

    async def _aclose(self) -> None:
        await self._connectors.aclose()
        await self._http.aclose()


@contextmanager
def _located(modality: str) -> Iterator[None]:
    try:
        yield
    except InsetError as error:
        error.locate(stage="fetch", modality=modality)
        raise


def _stopped() -> OverloadedError:
    return OverloadedError("Fetching was stopped, because this process is closing down.", stage="fetch")


def _too_late(modality: str) -> MediaTimeoutError:
    return MediaTimeoutError(f"The {modality} did not arrive within its deadline.")


def _too_busy(modality: str) -> OverloadedError:
    return OverloadedError(f"No media thread came to reading the header of this {modality} in time. Try again shortly.", stage="probe")
