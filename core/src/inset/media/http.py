"""http: and https: through one client whose checked address is the address that it dials."""

from __future__ import annotations

import email.utils
import hashlib
import socket
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import TYPE_CHECKING, ClassVar, Final

from inset.errors import MediaFetchError, MediaPolicyError, TransientFetchError
from inset.media.connector import MediaConnector
from inset.media.inflate import inflate
from inset.media.look_ups import AddressInfo, LookUps, Resolve, look_up
from inset.media.policy import MediaPolicy, find_refusal, refused_address
from inset.media.stream import ByteStream, FetchLimits, Validators, no_chunks
from inset.media.url import HTTP_SCHEMES, MediaUrl

if TYPE_CHECKING:
    import aiohttp

__all__ = ["HttpClient", "HttpConnector"]

MAX_REDIRECTS: Final = 10

_REDIRECTS: Final = frozenset({301, 302, 303, 307, 308})
_TRANSIENT: Final = frozenset({408, 425, 429})

_refusals: ContextVar[list[str]] = ContextVar("_refusals")
"""Why addresses were refused during one request: aiohttp joins the errors of several addresses and loses their type."""


class HttpClient:
    """Fetches over HTTP under the operator's policy; lives on the media loop.

    Every hop of a redirect goes through the whole check. The address is checked where the socket is made, so that a name which resolves
    to another address the second time gains nothing. Names in ``--allow-private-media-hosts`` have a session of their own.
    """

    def __init__(self, policy: MediaPolicy, *, resolve: Resolve = look_up) -> None:
        self._policy = policy
        self._look_ups = LookUps(resolve)
        self._sessions: dict[bool, aiohttp.ClientSession] = {}

    async def aclose(self) -> None:
        """Closes all connections."""
        for session in self._sessions.values():
            await session.close()
        self._sessions.clear()
        self._look_ups.close()

    def _get_session(self, *, may_be_private: bool) -> aiohttp.ClientSession:
        session = self._sessions.get(may_be_private)
        if session is None:
            session = self._sessions[may_be_private] = _make_session(self._look_ups, may_be_private)
        return session

    async def open(self, url: MediaUrl, limits: FetchLimits) -> ByteStream:
        """Returns the body behind an http: or https: URL, redirects followed.

        Raises:
            MediaPolicyError: A host, address, scheme or redirect is not allowed.
            TooLargeError: Content-Length says more than `FetchLimits.max_bytes`.
            TransientFetchError: The connection failed, or the server answered 408, 425, 429 or 5xx.
            MediaFetchError: Any other answer than 200.
        """
        response, where = await self._follow(url, limits)
        try:
            return _make_stream(response, limits, where)
        except BaseException:
            response.close()
            raise

    async def _follow(self, url: MediaUrl, limits: FetchLimits) -> tuple[aiohttp.ClientResponse, MediaUrl]:
        for _ in range(MAX_REDIRECTS + 1):
            response = await self._request(url, limits)
            if response.status not in _REDIRECTS:
                return response, url
            location = response.headers.get("Location")
            response.close()
            if not self._policy.allow_redirects:
                raise MediaPolicyError(f"{url.where} redirects; --media-url-allow-redirects is off.", stage="fetch")
            if not location:
                raise MediaFetchError(f"{url.where}: answered {response.status} without a place to go to.", stage="fetch")
            url = url.join(location)
        raise MediaFetchError(f"{url.where}: more than {MAX_REDIRECTS} redirects.", stage="fetch")

    async def _request(self, url: MediaUrl, limits: FetchLimits) -> aiohttp.ClientResponse:
        import yarl

        if url.scheme not in HTTP_SCHEMES:
            raise MediaPolicyError(f"A redirect to a {url.scheme}: URL is not allowed; only http: and https: are.", stage="fetch")
        self._policy.check_host(url)
        self._policy.check_literal(url)
        session = self._get_session(may_be_private=self._policy.may_be_private(url.host))
        with _translated(url):
            return await session.get(yarl.URL(url.text, encoded=True), allow_redirects=False, headers=_conditional_headers(limits, url))


class HttpConnector(MediaConnector):
    """The built-in connector for http: and https:; see `HttpClient`."""

    schemes: ClassVar[tuple[str, ...]] = HTTP_SCHEMES
    is_cacheable: ClassVar[bool] = True

    async def open(self, url: MediaUrl, limits: FetchLimits) -> ByteStream:
        """Returns the body behind the URL."""
        return await self.context.http.open(url, limits)


def _make_session(look_ups: LookUps, may_be_private: bool) -> aiohttp.ClientSession:
    import aiohttp

    from inset import __version__
    from inset.media.resolver import BoundedResolver

    def make_socket(info: AddressInfo) -> socket.socket:
        family, kind, protocol, _, address = info
        reason = find_refusal(address[0], may_be_private=may_be_private)
        if reason is not None:
            if (refusals := _refusals.get(None)) is not None:
                refusals.append(reason)
            raise OSError(f"refused: {reason}")  # aiohttp takes no other type
        return socket.socket(family, kind, protocol)

    connector = aiohttp.TCPConnector(
        resolver=BoundedResolver(look_ups),
        use_dns_cache=False,
        limit=0,  # `FetchPlaces` says how many fetches run
        socket_factory=make_socket,
    )
    return aiohttp.ClientSession(
        connector=connector,
        cookie_jar=aiohttp.DummyCookieJar(),
        trust_env=False,
        auto_decompress=False,
        timeout=aiohttp.ClientTimeout(total=None, sock_connect=None),  # the core holds the time
        headers={"User-Agent": f"inset/{__version__}", "Accept": "*/*", "Accept-Encoding": "identity"},
    )


def _digest(url: MediaUrl) -> str:
    return hashlib.sha256(url.text.encode()).hexdigest()


def _find_validators(limits: FetchLimits, url: MediaUrl) -> Validators | None:
    """Returns the validators that this very URL gave: to another, which a redirect leads to by now, they say nothing of its content."""
    return limits.validators if limits.validators and limits.validators.source == _digest(url) else None


def _conditional_headers(limits: FetchLimits, url: MediaUrl) -> dict[str, str]:
    headers = {}
    validators = _find_validators(limits, url)
    if validators is not None and validators.etag is not None:
        headers["If-None-Match"] = validators.etag
    if validators is not None and validators.last_modified is not None:
        headers["If-Modified-Since"] = validators.last_modified
    return headers


@contextmanager
def _translated(url: MediaUrl) -> Iterator[None]:
    """Turns what aiohttp raises into our errors; their texts are left out because some hold the whole URL."""
    import aiohttp

    refusals: list[str] = []
    token = _refusals.set(refusals)
    try:
        yield
    except aiohttp.ClientSSLError as error:
        raise MediaFetchError(f"{url.where}: no trusted TLS connection ({type(error).__name__}).", stage="fetch") from None
    except aiohttp.ClientConnectorDNSError as error:
        raise TransientFetchError(f"{url.where}: the look-up of the host name failed ({error.strerror or 'no address'}).") from None
    except (aiohttp.ClientConnectionError, aiohttp.ClientPayloadError, OSError) as error:
        if refusals:
            raise refused_address(url, refusals[0]) from None
        raise TransientFetchError(f"{url.where}: the connection failed ({type(error).__name__}).") from None
    except aiohttp.ClientError as error:
        raise MediaFetchError(f"{url.where}: the answer is not valid HTTP ({type(error).__name__}).", stage="fetch") from None
    finally:
        _refusals.reset(token)


def _make_stream(response: aiohttp.ClientResponse, limits: FetchLimits, url: MediaUrl) -> ByteStream:
    async def close() -> None:
        response.close()

    validators = Validators(response.headers.get("ETag"), response.headers.get("Last-Modified"), _digest(url))
    known = _find_validators(limits, url)
    if response.status == 304 and known is not None:
        return ByteStream(chunks=no_chunks(), is_unchanged=True, validators=validators or known, close=close)
    _check_status(response, url)
    encoding = response.headers.get("Content-Encoding", "identity").strip().lower() or "identity"
    body = _read(response, url)
    return ByteStream(
        chunks=body if encoding == "identity" else inflate(body, encoding, url.where),
        num_bytes=response.content_length if encoding == "identity" else None,
        validators=validators,
        is_storable="no-store" not in response.headers.get("Cache-Control", "").lower(),
        close=close,
    )


def _check_status(response: aiohttp.ClientResponse, url: MediaUrl) -> None:
    if response.status == 200:
        return
    message = f"{url.where}: answered {response.status}, not 200 with media."
    if response.status in _TRANSIENT or response.status >= 500:
        raise TransientFetchError(message, retry_after_seconds=_parse_retry_after(response.headers.get("Retry-After")))
    raise MediaFetchError(message, stage="fetch")


def _parse_retry_after(text: str | None) -> float | None:
    """Returns seconds from now, from a number of seconds or a date; None where there is neither."""
    if text is None:
        return None
    if text.strip().isdecimal():
        return float(text[:10])
    try:
        return max(0.0, email.utils.parsedate_to_datetime(text).timestamp() - time.time())
    except (ValueError, OverflowError):
        return None


async def _read(response: aiohttp.ClientResponse, url: MediaUrl) -> AsyncIterator[bytes]:
    # The context is entered for each chunk alone: a generator that yields inside would leave it in another context than it entered.
    while True:
        with _translated(url):
            chunk = await response.content.readany()
        if not chunk:
            return
        yield chunk
