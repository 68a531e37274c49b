"""Reading request bodies: counted, capped, and parsed beside the event loop."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any, Final

import msgspec

from inset.errors import InvalidRequestError, OverloadedError, TooLargeError

if TYPE_CHECKING:
    from starlette.requests import Request

__all__ = ["BodyReader", "HeldBody", "parse_json"]

LONG_STRING_BYTES: Final = 64 * 1024
"""Strings of at least this size are taken out of the JSON before it is parsed."""

MAX_DEPTH: Final = 128
"""Deepest nesting of a body; whoever walks through it later, such as a chat template, never runs out of stack."""

MAX_CONTAINERS: Final = 100_000
"""Most lists and objects in a body; the interpreter stops for long where there are millions."""

_MARKER: Final = "inset-long-string-"


class BodyReader:
    """Reads JSON bodies; what all requests of a front end hold at one time is bounded.

    Args:
        max_body_bytes: Largest body.
        max_total_bytes: Most bytes of bodies that are held at one time.
    """

    def __init__(self, max_body_bytes: int, max_total_bytes: int) -> None:
        self._max_body_bytes = max_body_bytes
        self._max_total_bytes = max_total_bytes
        self.num_bytes_held = 0

    async def read(self, request: Request) -> HeldBody:
        """Returns the parsed body, which the caller releases.

        Raises:
            TooLargeError: The body is over the cap; the rest of it is not read.
            OverloadedError: Too many bytes of bodies are held already.
            InvalidRequestError: It is not JSON.
            ClientDisconnect: The client went away while it was sending.
        """
        self._check_stated_size(request.headers.get("content-length"))
        held = HeldBody(self)
        try:
            pieces = []
            async for piece in request.stream():
                held.add(len(piece))
                self._check(held.num_bytes)
                pieces.append(piece)
            held.value = await asyncio.to_thread(_join_and_parse, pieces)
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


class HeldBody:
    """A parsed body, whose bytes count as held until it is released.

    Attributes:
        value: The JSON value.
        num_bytes: Its size as it was sent.
    """

    def __init__(self, reader: BodyReader) -> None:
        self._reader = reader
        self.value: Any = None
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


def _join_and_parse(pieces: list[bytes]) -> Any:
    body = b"".join(pieces)
    pieces.clear()
    return parse_json(body)


def parse_json(body: bytes) -> Any:
    """Returns the value of a JSON text.

    Parsing holds the interpreter lock for the whole text, so that a picture of some megabytes in it would stop every other request. Long
    strings without escapes are therefore taken out first, and put back by themselves.

    Raises:
        InvalidRequestError: It is not JSON, not UTF-8, or nested too deeply.
        TooLargeError: It consists of too many lists and objects.
    """
    try:
        shortened, strings = (body, []) if len(body) < LONG_STRING_BYTES else _take_out_long_strings(body)
        if shortened.count(b"[") + shortened.count(b"{") > 10 * MAX_CONTAINERS:  # most of them can stand in text
            raise _too_many()
        value = msgspec.json.decode(shortened)
        _check_containers(value)
        return _put_back(value, strings) if strings else value
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise InvalidRequestError(f"The body is not JSON: {_first_words(error)}.", stage="parse", code="invalid_json") from error


def _check_containers(value: Any) -> None:
    level, count = [value], 0
    for _ in range(MAX_DEPTH):
        level = [inner for item in level for inner in _inner(item)]
        count += len(level)
        if count > MAX_CONTAINERS:
            raise _too_many()
        if not level:
            return
    raise RecursionError


def _too_many() -> TooLargeError:
    return TooLargeError(f"The body has more than {MAX_CONTAINERS} lists and objects.", stage="parse", code="request_too_large")


def _inner(value: Any) -> list[Any]:
    """Returns the lists and objects that stand directly in a value."""
    items = value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
    return [item for item in items if isinstance(item, dict | list)]


def _take_out_long_strings(body: bytes) -> tuple[bytes, list[str]]:
    """Returns the JSON with a marker in place of every long string, and the strings."""
    if _MARKER.encode() in body:  # a client that sends our marker is parsed in one piece
        return body, []
    kept: list[memoryview | bytes] = []
    strings: list[str] = []
    view = memoryview(body)
    copied = position = 0
    while (start := body.find(b'"', position)) >= 0:
        end = _end_of_string(body, start + 1)
        if end < 0:
            break
        position = end + 1
        if end - start > LONG_STRING_BYTES and body.find(b"\\", start, end) < 0:
            kept += [view[copied : start + 1], f"{_MARKER}{len(strings)}".encode()]
            strings.append(str(view[start + 1 : end], "utf-8"))
            copied = end
    return (b"".join([*kept, view[copied:]]), strings) if strings else (body, [])


def _end_of_string(body: bytes, start: int) -> int:
    """Returns the position of the quotation mark that ends a string, or -1."""
    end = body.find(b'"', start)
    while end >= 0:
        before = end
        while before > start and body[before - 1] == 0x5C:
            before -= 1
        if (end - before) % 2 == 0:
            return end
        end = body.find(b'"', end + 1)
    return -1


def _put_back(value: Any, strings: list[str]) -> Any:
    if isinstance(value, str) and value.startswith(_MARKER):
        return strings[int(value.removeprefix(_MARKER))]
    if isinstance(value, dict):
        return {_put_back(key, strings): _put_back(item, strings) for key, item in value.items()}
    if isinstance(value, list):
        return [_put_back(item, strings) for item in value]
    return value


def _first_words(error: Exception) -> str:
    if isinstance(error, RecursionError):
        return "it is nested too deeply"
    if isinstance(error, UnicodeDecodeError):
        return "a string is not UTF-8"
    return str(error).rstrip(".")
