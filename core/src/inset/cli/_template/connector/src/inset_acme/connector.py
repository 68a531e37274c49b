"""The connector: brings the bytes behind acme: URLs."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import ClassVar, Final
from urllib.parse import unquote

from inset.api import ByteStream, FetchLimits, MediaConnector, MediaFetchError, MediaUrl

__all__ = ["AcmeConnector"]

CHUNK_BYTES: Final = 256 * 1024


class AcmeConnector(MediaConnector):
    """``acme:KEY``: the item that the store keeps under a key."""

    schemes: ClassVar[tuple[str, ...]] = ("acme",)

    def __init__(self, *, location: str = "") -> None:
        """Takes the operator's options, ``--media-connector-options '{"acme": {"location": "..."}}'``.

        Args:
            location: Where the store is.
        """
        self._location = location

    async def open(self, url: MediaUrl, limits: FetchLimits) -> ByteStream:
        """Returns the bytes of an item as they arrive; retries, time-outs, sharing and caps are the core's.

        Raises:
            MediaFetchError: There is no such item.
            TooLargeError: It is over the limit.
        """
        key = unquote(url.text.removeprefix("acme:"))
        num_bytes = await asyncio.to_thread(self.find_size, key)
        if num_bytes is None:
            raise MediaFetchError(f"{url.where} has no such item.", stage="fetch")
        limits.check_size(num_bytes)
        return ByteStream(chunks=self._read_all(key, num_bytes), num_bytes=num_bytes)

    async def _read_all(self, key: str, num_bytes: int) -> AsyncIterator[bytes]:
        for start in range(0, num_bytes, CHUNK_BYTES):
            yield await asyncio.to_thread(self.read, key, start, min(CHUNK_BYTES, num_bytes - start))

    def find_size(self, key: str) -> int | None:
        """Returns the size of an item in bytes, or None where there is no such item. May block: it runs in a thread."""
        raise NotImplementedError("Write AcmeConnector.find_size: ask the store how many bytes it keeps under the key.")

    def read(self, key: str, start: int, num_bytes: int) -> bytes:
        """Returns a part of an item. May block: it runs in a thread.

        Args:
            key: The item.
            start: First byte.
            num_bytes: How many.
        """
        raise NotImplementedError("Write AcmeConnector.read: give these bytes of the item.")
