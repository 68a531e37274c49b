"""Undoes a Content-Encoding in small pieces, so that a compressed bomb is stopped by the byte cap and not by the memory."""

from __future__ import annotations

import asyncio
import zlib
from collections.abc import AsyncIterable, AsyncIterator
from typing import Final

from inset.errors import MediaFetchError, TransientFetchError

__all__ = ["inflate"]

PIECE_BYTES: Final = 256 * 1024
_GZIP_OR_ZLIB: Final = zlib.MAX_WBITS | 32


async def inflate(chunks: AsyncIterable[bytes], encoding: str, where: str) -> AsyncIterator[bytes]:
    """Yields unpacked bytes in pieces of at most 256 KiB.

    Args:
        chunks: The packed bytes.
        encoding: The Content-Encoding header; gzip and deflate are known.
        where: Scheme and host, for messages.

    Raises:
        MediaFetchError: The encoding is not known, or the packed bytes are damaged.
        TransientFetchError: The packed bytes end too early.
    """
    if encoding not in {"gzip", "x-gzip", "deflate"}:
        raise MediaFetchError(f"{where}: the answer has the content encoding {encoding[:32]!r}; send it plain.", stage="fetch")
    unpacker = zlib.decompressobj(_GZIP_OR_ZLIB)
    async for chunk in chunks:
        packed = chunk
        while packed:
            if unpacker.eof:  # gzip allows several members, one after the other
                unpacker = zlib.decompressobj(_GZIP_OR_ZLIB)
            try:
                piece = unpacker.decompress(packed, PIECE_BYTES)
            except zlib.error as error:
                raise MediaFetchError(f"{where}: the answer is not valid {encoding}.", stage="fetch") from error
            if piece:
                yield piece
                await asyncio.sleep(0)  # one chunk may unpack to very much: let the other fetches of the loop go on
            packed = unpacker.unused_data if unpacker.eof else unpacker.unconsumed_tail
    if not unpacker.eof:
        raise TransientFetchError(f"{where}: the compressed answer ends too early.")
