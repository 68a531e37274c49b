"""Keeps in memory what another connector brings: ``cached+https://host/archive.zip``."""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import ClassVar, Final

from inset.api import ByteStream, ConfigError, FetchLimits, MediaConnector, MediaUrl, SingleFlight, Validators
from inset_connectors.pieces import give

__all__ = ["CachedConnector"]

PREFIX: Final = "cached+"
ENTRY_BYTES: Final = 512
"""What keeping an entry takes besides its URL and its bytes, so that many tiny ones count too."""


@dataclass(slots=True)
class _Entry:
    """What a URL gave.

    Attributes:
        data: The bytes.
        validators: What the server gave to ask again with, if anything.
        fresh_until: In seconds of the loop's clock.
    """

    data: bytes
    validators: Validators | None
    fresh_until: float


class CachedConnector(MediaConnector):
    """Serves ``cached+`` before any URL that another connector serves.

    All who ask for one URL at the same time share one fetch, archives' members included: ``zip+cached+https://host/a.zip!/member``.
    Bytes live in this process, what was used longest ago goes first, and each fetch of a client passes the host list first. What is no
    longer fresh is asked for again, with ETag or Last-Modified where the connector behind knows them.
    """

    schemes: ClassVar[tuple[str, ...]] = (PREFIX + "*",)

    def __init__(self, *, max_bytes: int = 256 * 1024 * 1024, age_seconds: float = 60.0) -> None:
        """Takes the operator's options.

        Args:
            max_bytes: Most memory that is used, URLs and some 512 bytes for each of them included; what is larger alone is not kept.
            age_seconds: How long bytes are given without asking again.

        Raises:
            ConfigError: One of them is negative.
        """
        if max_bytes < 0 or age_seconds < 0:
            raise ConfigError("The options max_bytes and age_seconds of the media connector 'cached' must not be negative.")
        self._max_bytes = max_bytes
        self._age_seconds = age_seconds
        self._entries: OrderedDict[str, _Entry] = OrderedDict()
        self._num_bytes = 0
        self._flights: SingleFlight[bytes] = SingleFlight()

    async def open(self, url: MediaUrl, limits: FetchLimits) -> ByteStream:
        """Returns bytes that are fresh, or lets the connector behind bring them."""
        inner = MediaUrl.parse(url.text.removeprefix(PREFIX))
        data = self._find_fresh(inner)
        if data is None:

            async def fetch(on_progress: Callable[[int], None]) -> bytes:
                return await self._fetch(inner, replace(limits, validators=None))

            data = await self._flights.join((inner.text, limits.max_bytes), fetch)
        limits.check_size(len(data))
        return ByteStream(chunks=give([data]), num_bytes=len(data))

    async def aclose(self) -> None:
        """Forgets everything."""
        self._entries.clear()
        self._num_bytes = 0

    def _find_fresh(self, url: MediaUrl) -> bytes | None:
        entry = self._entries.get(url.text)
        if entry is None or entry.fresh_until <= _now():
            return None
        self._entries.move_to_end(url.text)
        return entry.data

    async def _fetch(self, url: MediaUrl, limits: FetchLimits) -> bytes:
        known = self._entries.get(url.text)
        stream = await self.context.open(url, limits if known is None else replace(limits, validators=known.validators))
        try:
            if stream.is_unchanged and known is not None:
                data, validators = known.data, known.validators
            else:
                data, validators = b"".join([chunk async for chunk in stream.chunks]), stream.validators
            self._forget(url)
            if stream.is_storable:
                self._keep(url, _Entry(data, validators or None, _now() + self._age_seconds))
            return data
        finally:
            await stream.aclose()

    def _keep(self, url: MediaUrl, entry: _Entry) -> None:
        if _count_bytes(url.text, entry) > self._max_bytes:
            return
        self._entries[url.text] = entry
        self._num_bytes += _count_bytes(url.text, entry)
        while self._num_bytes > self._max_bytes:
            self._num_bytes -= _count_bytes(*self._entries.popitem(last=False))

    def _forget(self, url: MediaUrl) -> None:
        entry = self._entries.pop(url.text, None)
        if entry is not None:
            self._num_bytes -= _count_bytes(url.text, entry)


def _count_bytes(text: str, entry: _Entry) -> int:
    return len(text) + len(entry.data) + ENTRY_BYTES


def _now() -> float:
    return asyncio.get_running_loop().time()
