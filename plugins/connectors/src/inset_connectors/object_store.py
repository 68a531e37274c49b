"""Objects of S3, Google Cloud Storage and Azure: ``s3://bucket/key``, ``gs://bucket/key``, ``az://container/key``."""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import timedelta
from typing import Any, ClassVar, Final

from inset.api import (
    ByteStream,
    ConfigError,
    FetchLimits,
    MediaConnector,
    MediaFetchError,
    MediaPolicyError,
    MediaUrl,
    MissingExtraError,
    TransientFetchError,
    Validators,
)
from inset_connectors.paths import decode_path
from inset_connectors.pieces import PIECE_BYTES, give

__all__ = ["AzureConnector", "GoogleConnector", "ObjectStoreConnector", "S3Connector"]

MAX_STORES: Final = 64
"""How many buckets keep their connections open."""

_NEVER: Final = timedelta(days=1)
"""The client's own time-outs; the core holds the time."""


class ObjectStoreConnector(MediaConnector):
    """Serves the objects of one kind of store, with a client of its own (obstore).

    A broken answer goes on with a range from where it broke, as long as the object stays the same. The download cache may keep objects,
    and asks again by their ETag.
    """

    is_cacheable: ClassVar[bool] = True
    extra: ClassVar[str]
    """The extra of this package that brings the client; also the connector's name."""

    store_class: ClassVar[str]
    """The class in ``obstore.store``."""

    endpoint_setting: ClassVar[str] = "endpoint"
    """What the client calls its endpoint."""

    def __init__(
        self,
        *,
        buckets: Sequence[str] = (),
        anonymous: bool = False,
        endpoint: str | None = None,
        config: Mapping[str, Any] | None = None,
    ) -> None:
        """Takes the operator's options.

        Args:
            buckets: Which buckets or containers may be read; ``*`` alone stands for all that the credentials open.
            anonymous: Requests are not signed, so that public objects alone can be read.
            endpoint: The URL of a store that speaks the same protocol elsewhere.
            config: Further settings of the client by obstore's names, such as region, access_key_id or account_name. What is not given is
                taken from the usual environment variables.

        Raises:
            MissingExtraError: The client is not installed.
            ConfigError: Neither `buckets` nor `anonymous` is given, or a setting is not known.
        """
        if isinstance(buckets, str) or not (buckets or anonymous):
            raise ConfigError(
                f"The media connector {self.extra!r} needs the option buckets, because clients choose what is read with its credentials: "
                "a list of names, or of '*' alone. With anonymous set, it may be left out."
            )
        self._buckets = frozenset(buckets or "*")
        self._settings = {
            **(config or {}),
            **({"skip_signature": True} if anonymous else {}),
            **({} if endpoint is None else {self.endpoint_setting: endpoint}),
        }
        self._client_options = {
            "allow_http": endpoint is not None and endpoint.startswith("http://"),
            "timeout": _NEVER,
            "connect_timeout": _NEVER,
        }
        self._stores: OrderedDict[str, Any] = OrderedDict()
        try:
            self._make_store("any")
        except ImportError as error:
            extra = f"inset-connectors[{self.extra}]"
            raise MissingExtraError(f"The media connector {self.extra!r} needs obstore: pip install '{extra}'.") from error
        except Exception as error:  # the client has no common class for what it refuses
            message = f"The media connector {self.extra!r} does not take these --media-connector-options ({type(error).__name__})."
            raise ConfigError(message) from error

    async def open(self, url: MediaUrl, limits: FetchLimits) -> ByteStream:
        """Returns the bytes of an object.

        Raises:
            MediaPolicyError: The bucket is not allowed, or the URL names no object.
            TransientFetchError: The store cannot be reached, or answers with an error of its own.
            MediaFetchError: There is no such object, or the credentials do not open it.
        """
        bucket, key = self._parse(url)
        store = await self._find_store(bucket)
        etag = None if limits.validators is None else limits.validators.etag
        try:
            result = await _get(store, key, url, {} if etag is None else {"if_none_match": etag})
        except _NotModifiedError:
            return ByteStream(chunks=give([]), is_unchanged=True, validators=limits.validators)
        etag = result.meta["e_tag"]
        return ByteStream(chunks=_read(store, key, url, result), num_bytes=result.meta["size"], validators=Validators(etag))

    async def aclose(self) -> None:
        """Lets go of the clients and their connections."""
        self._stores.clear()

    def _parse(self, url: MediaUrl) -> tuple[str, str]:
        """Returns bucket and key."""
        if url.host is None or url.port is not None or "?" in url.text:
            raise MediaPolicyError(f"{url.where}: write {url.scheme}://BUCKET/KEY, a question mark in a key as %3F.", stage="fetch")
        if not {"*", url.host} & self._buckets:
            message = f"{url.where}: the bucket is not allowed; the operator's option buckets names those that are."
            raise MediaPolicyError(message, stage="fetch")
        return url.host, decode_path(url.text.removeprefix(f"{url.where}/"), url.where)

    async def _find_store(self, bucket: str) -> Any:
        if bucket not in self._stores:
            store = await asyncio.to_thread(self._make_store, bucket)  # it reads certificates
            self._stores.setdefault(bucket, store)
        self._stores.move_to_end(bucket)
        while len(self._stores) > MAX_STORES:
            self._stores.popitem(last=False)
        return self._stores[bucket]

    def _make_store(self, bucket: str) -> Any:
        from obstore import store

        store_class: Any = getattr(store, self.store_class)
        # The core tries again and holds the time.
        return store_class(bucket, config=self._settings, client_options=self._client_options, retry_config={"max_retries": 0})


class S3Connector(ObjectStoreConnector):
    """``s3://BUCKET/KEY``, of Amazon or any store with the same protocol."""

    schemes: ClassVar[tuple[str, ...]] = ("s3",)
    extra: ClassVar[str] = "s3"
    store_class: ClassVar[str] = "S3Store"


class GoogleConnector(ObjectStoreConnector):
    """``gs://BUCKET/KEY`` of Google Cloud Storage."""

    schemes: ClassVar[tuple[str, ...]] = ("gs",)
    extra: ClassVar[str] = "gs"
    store_class: ClassVar[str] = "GCSStore"
    endpoint_setting: ClassVar[str] = "base_url"


class AzureConnector(ObjectStoreConnector):
    """``az://CONTAINER/KEY`` of Azure Blob Storage; the account comes from the settings."""

    schemes: ClassVar[tuple[str, ...]] = ("az",)
    extra: ClassVar[str] = "az"
    store_class: ClassVar[str] = "AzureStore"


class _NotModifiedError(Exception):
    """The object is still the one that was asked about."""


async def _get(store: Any, key: str, url: MediaUrl, options: Any) -> Any:
    import obstore

    with _translated(url):
        return await obstore.get_async(store, key, options=options)


async def _read(store: Any, key: str, url: MediaUrl, result: Any) -> AsyncIterator[bytes]:
    etag, position = result.meta["e_tag"], 0
    while True:
        start = position
        try:
            with _translated(url):
                async for chunk in result.stream(min_chunk_size=PIECE_BYTES):
                    position += len(chunk)
                    yield chunk
            return
        except TransientFetchError:
            if position == start or etag is None:
                raise
        result = await _get(store, key, url, {"range": {"offset": position}, "if_match": etag})


@contextmanager
def _translated(url: MediaUrl) -> Iterator[None]:
    """Turns what obstore raises into our errors; its texts are left out because they hold the whole URL."""
    from obstore import exceptions

    try:
        yield
    except FileNotFoundError:
        raise MediaFetchError(f"{url.where}: there is no such object.", stage="fetch") from None
    except exceptions.NotModifiedError:
        raise _NotModifiedError from None
    except (exceptions.PermissionDeniedError, exceptions.UnauthenticatedError):
        raise MediaFetchError(f"{url.where}: the store does not let this server read that object.", stage="fetch") from None
    except exceptions.BaseError as error:
        raise TransientFetchError(f"{url.where}: the store could not be read ({type(error).__name__}).") from None
