"""Bytes on their way to the core: from memory, and out of code that blocks."""

from __future__ import annotations

import asyncio
import inspect
import threading
from collections.abc import AsyncIterator, Generator, Iterable
from concurrent.futures import Executor
from contextlib import suppress
from typing import Final

__all__ = ["PIECE_BYTES", "give", "pull"]

PIECE_BYTES: Final = 1024 * 1024


async def give(pieces: Iterable[bytes]) -> AsyncIterator[bytes]:
    """Gives what lies in memory."""
    for piece in pieces:
        yield piece


async def pull(pieces: Generator[bytes, None, None], *, executor: Executor | None = None) -> AsyncIterator[bytes]:
    """Takes each piece in a thread, because taking it blocks; a cancelled reader waits for none.

    Args:
        pieces: Used by one thread at a time, and closed in one, because closing may block too.
        executor: Whose threads; the loop's own when None.
    """
    loop = asyncio.get_running_loop()
    source = _Source(pieces)
    try:
        while (piece := await loop.run_in_executor(executor, source.take)) is not None:
            yield piece
    finally:
        if source.end():
            with suppress(RuntimeError):  # the threads are gone, and with them whatever there was to close
                loop.run_in_executor(executor, source.close)


class _Source:
    """Pieces that one thread takes while another may say that nobody wants them any more: who is last closes them."""

    def __init__(self, pieces: Generator[bytes, None, None]) -> None:
        self._pieces = pieces
        self._lock = threading.Lock()
        self._is_taking = False
        self._has_ended = False

    def take(self) -> bytes | None:
        """Returns the next piece, or None behind the last one."""
        with self._lock:
            self._is_taking = not self._has_ended
            if not self._is_taking:
                return None
        try:
            return next(self._pieces, None)
        finally:
            self._stop_taking()

    def end(self) -> bool:
        """Has nothing more be taken; returns whether the caller must see to the closing."""
        with self._lock:
            self._has_ended = True
            return not self._is_taking and inspect.getgeneratorstate(self._pieces) != inspect.GEN_CLOSED

    def close(self) -> None:
        """Closes the pieces; they are no longer wanted, and so is what goes wrong with them."""
        with suppress(Exception):
            self._pieces.close()

    def _stop_taking(self) -> None:
        with self._lock:
            self._is_taking = False
            has_ended = self._has_ended
        if has_ended:
            self.close()
