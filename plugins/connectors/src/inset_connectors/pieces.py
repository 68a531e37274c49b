"""Bytes on their way to the core: from memory, and out of code that blocks."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterable, Iterator
from concurrent.futures import Executor
from typing import Final

__all__ = ["PIECE_BYTES", "give", "pull"]

PIECE_BYTES: Final = 1024 * 1024


async def give(pieces: Iterable[bytes]) -> AsyncIterator[bytes]:
    """Gives what lies in memory."""
    for piece in pieces:
        yield piece


async def pull(pieces: Iterator[bytes], *, executor: Executor | None = None) -> AsyncIterator[bytes]:
    """Takes each piece in a thread, because taking it blocks; a cancelled reader waits for none.

    Args:
        pieces: Used by one thread at a time.
        executor: Whose threads; the loop's own when None.
    """
    loop = asyncio.get_running_loop()
    while (piece := await loop.run_in_executor(executor, next, pieces, None)) is not None:
        yield piece
