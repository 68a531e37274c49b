"""JSON of requests as values: refused before it costs anything where it is out of proportion, and read in pieces.

The interpreter lock is held while a text is parsed, while text becomes a string, and while bytes are searched: whatever takes longer than
a few milliseconds stops every other request, in whichever thread it runs. So one walk in small pieces counts what stands outside of strings
and takes long strings out; what is left is small enough to be parsed at once.
"""

from __future__ import annotations

import re
import secrets
from typing import Any, Final, NamedTuple, NoReturn

import msgspec

from inset.errors import InvalidRequestError, TooLargeError

__all__ = ["JsonLimits", "parse_json"]

LONG_STRING_BYTES: Final = 4096
"""Strings of at least this size are taken out of the JSON before it is parsed."""

MAX_DEPTH: Final = 128
"""Deepest nesting of a body; whoever walks through it later, such as a chat template, never runs out of stack."""

MEDIA_FIELDS: Final = ("input", "messages")
"""Where long strings can be media; anywhere else they are text."""

TEXT_NAMES: Final = ("content", "name", "refusal", "role", "text", "thinking")
"""Names whose values are text there too."""

_PIECE_BYTES: Final = 256 * 1024
_LONGEST_ESCAPE: Final = 12
_MARKER: Final = f"inset-{secrets.token_hex(16)}-"
_SHORT_STRING: Final = re.compile(rb'([^"]{0,64}+)"[^"\\]{0,4000}+"')
"""What stands before a string, and the string: the usual case, in one step."""

_INSIDE: Final = re.compile(rb'(?:[^"\\]++|\\.)*+', re.DOTALL)


class JsonLimits(NamedTuple):
    """What a JSON text may consist of.

    Attributes:
        max_values: Most strings, lists, objects and commas between them.
        max_text_bytes: Most bytes besides the long strings that can be media.
    """

    max_values: int = 250_000
    max_text_bytes: int = 4 * 1024 * 1024


class _StringEnd(NamedTuple):
    """Where a string ends: the position of its quotation mark, and whether there are escapes before it."""

    position: int
    is_escaped: bool


def parse_json(body: bytes, limits: JsonLimits | None = None) -> Any:
    """Returns the value of a JSON text.

    Raises:
        InvalidRequestError: It is not JSON, not UTF-8, or nested too deeply.
        TooLargeError: It has too many values, or too much text.
    """
    try:
        return _Reading(body, limits or JsonLimits()).read()
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise InvalidRequestError(f"The body is not JSON: {_first_words(error)}.", stage="parse", code="invalid_json") from error


class _Reading:
    """The reading of one text."""

    def __init__(self, body: bytes, limits: JsonLimits) -> None:
        self._body = body
        self._limits = limits
        self._num_values = 0
        self._long: list[tuple[int, _StringEnd]] = []

    def read(self) -> Any:
        """Returns the value."""
        shortened = self._body if len(self._body) < LONG_STRING_BYTES else self._take_out_long_strings()
        if len(shortened) > self._limits.max_text_bytes:
            self._refuse_text()
        value = msgspec.json.decode(shortened)
        _check_depth(value)
        if not self._long:
            return value
        if len(shortened) + self._num_text_bytes(value) > self._limits.max_text_bytes:
            self._refuse_text()
        return self._put_back(value)

    def _take_out_long_strings(self) -> bytes:
        """Returns the JSON with a marker in place of every long string."""
        kept: list[memoryview | bytes] = []
        copied = position = 0
        view = memoryview(self._body)
        while True:
            position = self._pass_short_strings(position)
            start = self._pass_gap(position)
            if start < 0:
                break
            self._count(1)
            end = _find_end(self._body, start + 1)
            if end.position - start > LONG_STRING_BYTES:
                kept += [view[copied : start + 1], f"{_MARKER}{len(self._long)}".encode()]
                self._long.append((start + 1, end))
                copied = end.position
            position = end.position + 1
        return b"".join([*kept, view[copied:]]) if kept else self._body

    def _pass_short_strings(self, position: int) -> int:
        """Counts strings and what stands before them, as long as nothing is long or escaped, and returns where that ends."""
        while found := _SHORT_STRING.match(self._body, position):
            gap = found.end(1) - position
            self._count(1 + (gap if gap < 2 else self._num_separators(position, found.end(1))))
            position = found.end()
        return position

    def _pass_gap(self, position: int) -> int:
        """Counts what stands before the next string, and returns where that begins, or -1."""
        body = self._body
        for offset in range(position, len(body), _PIECE_BYTES):
            stop = min(offset + _PIECE_BYTES, len(body))
            quote = body.find(b'"', offset, stop)
            end = stop if quote < 0 else quote
            self._count(self._num_separators(offset, end))
            if quote >= 0:
                return quote
        return -1

    def _num_separators(self, start: int, end: int) -> int:
        return sum(self._body.count(letter, start, end) for letter in b",[{")

    def _count(self, num_values: int) -> None:
        self._num_values += num_values
        if self._num_values > self._limits.max_values:
            raise TooLargeError(
                f"The body has more than {self._limits.max_values} strings, lists, objects and commas between them "
                "(--max-request-values). Send embeddings as the base64 of a .npy file, and less of everything else.",
                stage="parse",
                code="request_too_large",
            )

    def _refuse_text(self) -> NoReturn:
        raise TooLargeError(
            f"The body has more than {self._limits.max_text_bytes} bytes besides its media (--max-request-text-bytes). Send less text.",
            stage="parse",
            code="request_too_large",
        )

    def _find_long(self, marker: str) -> tuple[int, _StringEnd]:
        return self._long[int(marker.removeprefix(_MARKER))]

    def _num_text_bytes(self, value: Any, *, has_media: bool = False) -> int:
        """Returns the bytes of the long strings that can be no media: of all but the values of some names under `MEDIA_FIELDS`."""
        if isinstance(value, str):
            return self._num_long_bytes(value)
        if isinstance(value, list):
            return sum(self._num_text_bytes(item, has_media=has_media) for item in value)
        num_bytes = 0
        for name, item in value.items() if isinstance(value, dict) else ():
            num_bytes += self._num_long_bytes(name)
            if not (has_media and isinstance(item, str) and name not in TEXT_NAMES):
                num_bytes += self._num_text_bytes(item, has_media=has_media or name in MEDIA_FIELDS)
        return num_bytes

    def _num_long_bytes(self, text: str) -> int:
        if not text.startswith(_MARKER):
            return 0
        start, end = self._find_long(text)
        return end.position - start

    def _put_back(self, value: Any) -> Any:
        if isinstance(value, str) and value.startswith(_MARKER):
            return _decode_string(self._body, *self._find_long(value))
        if isinstance(value, dict):
            return {self._put_back(key): self._put_back(item) for key, item in value.items()}
        if isinstance(value, list):
            return [self._put_back(item) for item in value]
        return value


def _find_end(body: bytes, start: int) -> _StringEnd:
    """Returns the end of the string whose first byte stands at `start`.

    Raises:
        msgspec.DecodeError: It does not end.
    """
    for offset in range(start, len(body), _PIECE_BYTES):
        stop = min(offset + _PIECE_BYTES, len(body))
        quote = body.find(b'"', offset, stop)
        escape = body.find(b"\\", offset, stop if quote < 0 else quote)
        if escape >= 0:
            return _StringEnd(_find_end_behind_escapes(body, escape), is_escaped=True)
        if quote >= 0:
            return _StringEnd(quote, is_escaped=False)
    raise _endless()


def _find_end_behind_escapes(body: bytes, position: int) -> int:
    while position < len(body):
        found = _INSIDE.match(body, position, position + _PIECE_BYTES)
        assert found is not None  # it matches nothing at all
        if body[found.end() : found.end() + 1] == b'"':
            return found.end()
        if found.end() == position:
            break
        position = found.end()
    raise _endless()


def _endless() -> msgspec.DecodeError:
    return msgspec.DecodeError("a string has no end")


def _decode_string(body: bytes, start: int, end: _StringEnd) -> str:
    if not end.is_escaped:
        return str(memoryview(body)[start : end.position], "utf-8")
    pieces = []
    while start < end.position:
        start, piece = _decode_piece(body, start, end.position)
        pieces.append(piece)
    return "".join(pieces)


def _decode_piece(body: bytes, start: int, end: int) -> tuple[int, str]:
    """Returns the text of one piece, and where it ends: where no escape, pair of surrogates or character is cut."""
    longest = min(start + _PIECE_BYTES, end)
    for stop in range(longest, max(start, longest - _LONGEST_ESCAPE), -1):
        try:
            return stop, msgspec.json.decode(b'"%b"' % body[start:stop], type=str)
        except (msgspec.DecodeError, UnicodeDecodeError):
            if stop == end:
                raise
    raise msgspec.DecodeError("a string has an escape that is none")


def _check_depth(value: Any) -> None:
    level = [value]
    for _ in range(MAX_DEPTH):
        level = [inner for item in level for inner in _inner(item)]
        if not level:
            return
    raise RecursionError


def _inner(value: Any) -> list[Any]:
    """Returns the lists and objects that stand directly in a value."""
    items = value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
    return [item for item in items if isinstance(item, dict | list)]


def _first_words(error: Exception) -> str:
    if isinstance(error, RecursionError):
        return "it is nested too deeply"
    if isinstance(error, UnicodeDecodeError):
        return "a string is not UTF-8"
    return str(error).rstrip(".")
