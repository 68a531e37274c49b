"""Reading request bodies: counted, capped, and parsed beside the event loop."""

from __future__ import annotations

import asyncio
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import TYPE_CHECKING, Final, Generic, TypeVar

import msgspec

from inset.errors import OverloadedError, TooLargeError
from inset.server.json_text import parse_json
from inset.server.protocol import convert

if TYPE_CHECKING:
    from starlette.requests import Request

    from inset.server.json_text import JsonLimits

__all__ = ["BodyReader", "HeldBody"]

R = TypeVar("R", bound=msgspec.Struct)

_SMALL_BYTES: Final = 64 * 1024
_NUM_THREADS: Final = 2


class BodyReader:
    """Reads JSON bodies; what all requests of a front end hold at one time is bounded. Whoever makes it closes it.

    Large bodies have few threads of their own: each thread at work makes the event loop wait for the interpreter's lock a little longer.
    Small ones have others, so that they wait neither for large ones nor for what else runs in threads.

    Args:
        max_body_bytes: Largest body.
        max_total_bytes: Most bytes of bodies that are held at one time.
        limits: What a body may consist of.
    """

    def __init__(self, max_body_bytes: int, max_total_bytes: int, limits: JsonLimits) -> None:
        self._max_body_bytes = max_body_bytes
        self._max_total_bytes = max_total_bytes
        self._limits = limits
        self._threads = ThreadPoolExecutor(_NUM_THREADS, thread_name_prefix="inset-body")
        self._small_threads = ThreadPoolExecutor(_NUM_THREADS, thread_name_prefix="inset-small-body")
        self.num_bytes_held = 0

    def close(self) -> None:
        """Ends its threads; idempotent."""
        self._threads.shutdown(cancel_futures=True)
        self._small_threads.shutdown(cancel_futures=True)

    async def read(self, request: Request, kind: type[R]) -> HeldBody[R]:
        """Returns the body as a request of a kind, which the caller releases.

        Raises:
            TooLargeError: The body is over the cap; the rest of it is not read.
            OverloadedError: Too many bytes of bodies are held already.
            InvalidRequestError: It is not JSON, or no request of this kind.
            ClientDisconnect: The client went away while it was sending.
        """
        self._check_stated_size(request.headers.get("content-length"))
        held = HeldBody[R](self)
        try:
            pieces = []
            async for piece in request.stream():
                held.add(len(piece))
                self._check(held.num_bytes)
                pieces.append(piece)
            threads = self._small_threads if held.num_bytes < _SMALL_BYTES else self._threads
            work = partial(_join_and_convert, pieces, self._limits, kind)
            held.value = await asyncio.get_running_loop().run_in_executor(threads, work)
        except BaseException:
            held.release()
            raise
        return held

    def _check_stated_size(self, text: str | None) -> None:
        if text is not None and text.isdecimal() and int(text) > self._max_body_bytes:
            raise self._too_large()

    def _check(self, num_bytes: int) -> None:
        if num_bytes > self._max_body_bytes:
            raise self._too_large()
        if self.num_bytes_held > self._max_total_bytes:
            raise OverloadedError("The server holds too many large requests at this moment; come again later.", stage="queue")

    def _too_large(self) -> TooLargeError:
        return TooLargeError(
            f"The body is larger than {self._max_body_bytes} bytes (--max-request-body-bytes). Send media by URL, or smaller.",
            stage="parse",
            code="request_too_large",
        )


class HeldBody(Generic[R]):
    """A parsed body, whose bytes count as held until it is released.

    Attributes:
        value: The request; None once it is released.
        num_bytes: Its size as it was sent.
    """

    def __init__(self, reader: BodyReader) -> None:
        self._reader = reader
        self.value: R | None = None
        self.num_bytes = 0

    def add(self, num_bytes: int) -> None:
        """Counts further bytes."""
        self.num_bytes += num_bytes
        self._reader.num_bytes_held += num_bytes

    def release(self) -> None:
        """Lets go of the value, and of its bytes; idempotent."""
        self.value = None
        self._reader.num_bytes_held -= self.num_bytes
        self.num_bytes = 0


def _join_and_convert(pieces: list[bytes], limits: JsonLimits, kind: type[R]) -> R:
    body = b"".join(pieces)
    pieces.clear()
    return convert(parse_json(body, limits), kind)
