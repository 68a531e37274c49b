"""Connectors: what fetches the bytes behind a URL scheme, and the surface that every one of them has."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar, Final, TypeVar, final

from inset.config import MediaConfig
from inset.errors import InvariantError, PluginContractError
from inset.media.io import MediaIO
from inset.media.policy import MediaPolicy
from inset.media.ref import MediaRef
from inset.media.stream import ByteStream, FetchLimits
from inset.media.url import MediaUrl
from inset.registry import ConnectorRegistration, is_scheme

if TYPE_CHECKING:
    from inset.media.budget import RequestBudget
    from inset.media.fetcher import MediaFetcher
    from inset.media.http import HttpClient

__all__ = ["MEDIA_CONNECTOR_REGISTRY", "ConnectorContext", "FetchSurface", "MediaConnector"]

T = TypeVar("T")
A = TypeVar("A")


class FetchSurface(ABC):
    """The calls that fetch media, in pairs; each returns a reference that is named but not decoded.

    The first of a pair blocks its thread, the second is awaited; both run on the one loop of the fetcher. They differ in the time that they
    allow. A budget, where given, counts the bytes of the request. All of them raise:

    - MediaPolicyError: the scheme, host, address, redirect or path is not allowed;
    - TooLargeError: the item or the request is over a cap;
    - MediaFetchError, MediaTimeoutError: the bytes could not be had, or not in time;
    - MediaDecodeError: the bytes are not media of that modality.

    Source: the media connector of lazy media decode.
    """

    @abstractmethod
    def _get_fetcher(self) -> MediaFetcher: ...

    @final
    def load_from_url(self, url: str, media_io: MediaIO[T], *, budget: RequestBudget | None = None) -> MediaRef[T]:
        """Fetches with the time-outs of the decoder's modality."""
        (ref,) = self._get_fetcher().run(url, (media_io,), media_io.modality, budget)
        return ref

    @final
    async def load_from_url_async(self, url: str, media_io: MediaIO[T], *, budget: RequestBudget | None = None) -> MediaRef[T]:
        """Fetches with the time-outs of the decoder's modality."""
        (ref,) = await self._get_fetcher().run_async(url, (media_io,), media_io.modality, budget)
        return ref

    @final
    def fetch_image(self, image_url: str, media_io: MediaIO[T], *, budget: RequestBudget | None = None) -> MediaRef[T]:
        """Fetches with the time-outs of an image."""
        (ref,) = self._get_fetcher().run(image_url, (media_io,), "image", budget)
        return ref

    @final
    async def fetch_image_async(self, image_url: str, media_io: MediaIO[T], *, budget: RequestBudget | None = None) -> MediaRef[T]:
        """Fetches with the time-outs of an image."""
        (ref,) = await self._get_fetcher().run_async(image_url, (media_io,), "image", budget)
        return ref

    @final
    def fetch_video(self, video_url: str, media_io: MediaIO[T], *, budget: RequestBudget | None = None) -> MediaRef[T]:
        """Fetches with the time-outs of a video."""
        (ref,) = self._get_fetcher().run(video_url, (media_io,), "video", budget)
        return ref

    @final
    async def fetch_video_async(self, video_url: str, media_io: MediaIO[T], *, budget: RequestBudget | None = None) -> MediaRef[T]:
        """Fetches with the time-outs of a video."""
        (ref,) = await self._get_fetcher().run_async(video_url, (media_io,), "video", budget)
        return ref

    @final
    def fetch_audio(self, audio_url: str, media_io: MediaIO[T], *, budget: RequestBudget | None = None) -> MediaRef[T]:
        """Fetches with the time-outs of audio."""
        (ref,) = self._get_fetcher().run(audio_url, (media_io,), "audio", budget)
        return ref

    @final
    async def fetch_audio_async(self, audio_url: str, media_io: MediaIO[T], *, budget: RequestBudget | None = None) -> MediaRef[T]:
        """Fetches with the time-outs of audio."""
        (ref,) = await self._get_fetcher().run_async(audio_url, (media_io,), "audio", budget)
        return ref

    @final
    def fetch_video_and_audio(
        self, video_url: str, video_io: MediaIO[T], audio_io: MediaIO[A], *, budget: RequestBudget | None = None
    ) -> tuple[MediaRef[T], MediaRef[A]]:
        """Fetches once for two decoders, with the time-outs of a video and the smaller of both byte caps."""
        video, audio = self._get_fetcher().run(video_url, (video_io, audio_io), "video", budget)
        return video, audio

    @final
    async def fetch_video_and_audio_async(
        self, video_url: str, video_io: MediaIO[T], audio_io: MediaIO[A], *, budget: RequestBudget | None = None
    ) -> tuple[MediaRef[T], MediaRef[A]]:
        """Fetches once for two decoders, with the time-outs of a video and the smaller of both byte caps."""
        video, audio = await self._get_fetcher().run_async(video_url, (video_io, audio_io), "video", budget)
        return video, audio


@dataclass(frozen=True, slots=True)
class ConnectorContext:
    """What the core lends to a connector for as long as it lives.

    Attributes:
        config: The media options.
        policy: The operator's rules.
        http: The core's HTTP client, with its address and redirect rules: ``await self.context.http.open(url, limits)``.
        open: What another connector of this core brings: ``await self.context.open(MediaUrl.parse(...), limits)``, for a connector that
            unpacks, keeps or rewrites it. Scheme, host and limits are checked as for a client's own URL, and the bytes count. The caller
            closes the stream (`ByteStream.aclose`). Only for use in `MediaConnector.open`.
    """

    config: MediaConfig
    policy: MediaPolicy
    http: HttpClient
    open: Callable[[MediaUrl, FetchLimits], Awaitable[ByteStream]]


_FINAL: Final = frozenset(name for name in vars(FetchSurface) if not name.startswith("_")) | {"context", "attach"}


class MediaConnector(FetchSurface):
    """Fetches the bytes behind one or several URL schemes. A plugin writes `schemes` and `open`, nothing else.

    A connector lives as long as the core that made it, on that core's one media loop: `open`, `aopen` and `aclose` are only called there,
    and must not block it. Options that the operator gives (``--media-connector-options``) arrive as keyword arguments of the constructor.
    """

    schemes: ClassVar[tuple[str, ...]]
    """The URL schemes that it serves, lower case, without the colon; ``zip+*`` stands for ``zip+`` and any other scheme."""

    is_cacheable: ClassVar[bool] = False
    """Whether the download cache may keep what it brings; True only if `open` honours `FetchLimits.validators`."""

    is_shared: ClassVar[bool] = True
    """Whether callers that ask for one URL at the same time share one fetch; False where the URL itself is the payload."""

    _context: ConnectorContext | None = None
    _fetcher: MediaFetcher | None = None

    def __init_subclass__(cls) -> None:
        """Checks what a type checker would have said to the author.

        Raises:
            PluginContractError: A final method is overridden, or `schemes` is not a tuple of lower-case names.
        """
        super().__init_subclass__()
        if taken := sorted(_FINAL & vars(cls).keys()):
            raise PluginContractError(f"{cls.__name__} overrides {', '.join(taken)}, which are final: a connector writes `open` alone.")
        schemes = vars(cls).get("schemes", ("inherited",))
        if not isinstance(schemes, tuple) or not schemes or not all(isinstance(s, str) and is_scheme(s) for s in schemes):
            raise PluginContractError(f"schemes of {cls.__name__} must be a tuple of lower-case URL schemes, not {schemes!r}.")

    @abstractmethod
    async def open(self, url: MediaUrl, limits: FetchLimits) -> ByteStream:
        """Returns the bytes behind a URL of one of the schemes, as they arrive.

        The core has checked the host. It counts and times the bytes, closes the stream, tries again after a TransientFetchError, OSError
        or TimeoutError, and cancels when nobody waits any more. A message never holds the path or query of the URL: use `MediaUrl.where`.

        Raises:
            MediaPolicyError: The URL is not allowed.
            TooLargeError: The item is known to be over `FetchLimits.max_bytes`.
            TransientFetchError: Another attempt may succeed.
            MediaFetchError: None will.
        """

    async def aopen(self) -> None:
        """Opens what the connector keeps for its life, on the media loop, before the first `open`."""

    async def aclose(self) -> None:
        """Closes what `aopen` opened."""

    @final
    @property
    def context(self) -> ConnectorContext:
        """What the core lends; there once a fetcher has taken the connector."""
        if self._context is None:
            raise InvariantError(f"{type(self).__name__} is used before a MediaFetcher has taken it.")
        return self._context

    @final
    def attach(self, context: ConnectorContext, fetcher: MediaFetcher) -> None:
        """Takes what the core lends; called once, by the fetcher."""
        if self._fetcher is not None:
            raise InvariantError(f"{type(self).__name__} belongs to another MediaFetcher already.")
        self._context, self._fetcher = context, fetcher

    def _get_fetcher(self) -> MediaFetcher:
        if self._fetcher is None:
            raise InvariantError(f"{type(self).__name__} is used before a MediaFetcher has taken it.")
        return self._fetcher


class _DefaultCoreView(Mapping[str, ConnectorRegistration]):
    """Reads the registry of the default core when it is looked at, because plugins load then and not at import."""

    def __getitem__(self, name: str) -> ConnectorRegistration:
        return self._view()[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._view())

    def __len__(self) -> int:
        return len(self._view())

    def _view(self) -> Mapping[str, ConnectorRegistration]:
        from inset.plugins import get_default_host

        return get_default_host().registries.media_connectors.view()


MEDIA_CONNECTOR_REGISTRY: Final[Mapping[str, ConnectorRegistration]] = _DefaultCoreView()
"""Connector name -> `ConnectorRegistration`, of the default core; read-only. A plugin adds to it through ``register_media_connectors``."""
