"""data: URLs: base64 in slices, lenient where clients are known to differ, strict everywhere else."""

from __future__ import annotations

import asyncio
import binascii
import re
from collections.abc import AsyncIterator, Iterator
from typing import ClassVar, Final

from inset.errors import MediaFetchError, TooLargeError
from inset.media.connector import MediaConnector
from inset.media.frame_list import FRAME_LIST_MAGIC, MOST_FRAMES, frame_prefix
from inset.media.stream import ByteStream, FetchLimits
from inset.media.url import MediaUrl

__all__ = ["DataUrlConnector", "iter_base64"]

SLICE_CHARACTERS: Final = 1024 * 1024
"""Decoded in one piece while the interpreter lock is held: a fraction of a millisecond."""

MAX_HEADER_CHARACTERS: Final = 1024
FRAMES_IN_A_ROW: Final = 64
_JPEG: Final = b"\xff\xd8"
_WHITE_SPACE: Final = b" \t\r\n\f\v"
_BASE64: Final = re.compile(r";[ \t]*base64[ \t]*$", re.IGNORECASE)


class DataUrlConnector(MediaConnector):
    """The built-in connector for data: URLs.

    ``data:TYPE;any=parameter;base64,DATA``: the type is not looked at, because content decides, with one exception: the data of
    ``video/jpeg`` is a list of base64 pictures with commas between them, which become one payload as `inset.media.frame_list` frames it.
    """

    schemes: ClassVar[tuple[str, ...]] = ("data",)
    is_shared: ClassVar[bool] = False

    async def open(self, url: MediaUrl, limits: FetchLimits) -> ByteStream:
        """Returns the decoded bytes.

        Raises:
            TooLargeError: There is too much text to be within the limit.
            MediaFetchError: The URL is not base64.
        """
        start = url.text.find(",", 0, MAX_HEADER_CHARACTERS)
        if start < 0:
            raise MediaFetchError("The data: URL has no comma that ends its type and parameters.", stage="fetch")
        header = url.text[len("data:") : start]
        if _BASE64.search(header) is None:
            raise MediaFetchError("The data: URL is not base64: write data:TYPE;base64,DATA.", stage="fetch")
        is_frame_list = header.partition(";")[0].strip().lower() == "video/jpeg"
        return ByteStream(chunks=_decode_frames(url.text, start + 1) if is_frame_list else _decode(url.text, start + 1))


async def _decode(text: str, start: int) -> AsyncIterator[bytes]:
    for piece in iter_base64(text, start, len(text)):
        yield piece
        await asyncio.sleep(0)  # lets the other fetches of the loop go on


async def _decode_frames(text: str, start: int) -> AsyncIterator[bytes]:
    if text.count(",", start) >= MOST_FRAMES:
        raise TooLargeError(f"The data: URL lists more than {MOST_FRAMES} frames.", stage="fetch")
    pieces: list[bytes] = [FRAME_LIST_MAGIC]
    while start <= len(text):
        end = text.find(",", start)
        end = len(text) if end < 0 else end
        frame = b"".join(iter_base64(text, start, end))
        if not frame.startswith(_JPEG):
            raise MediaFetchError("The data: URL of the type video/jpeg must be a list of base64 JPEG pictures.", stage="fetch")
        pieces += [frame_prefix(frame), frame]
        start = end + 1
        if len(pieces) >= 2 * FRAMES_IN_A_ROW or start > len(text):
            yield b"".join(pieces)
            pieces.clear()
            await asyncio.sleep(0)


def iter_base64(text: str, start: int, end: int) -> Iterator[bytes]:
    """Yields the bytes that base64 text stands for, slice by slice.

    ASCII white space is skipped and missing padding is added. A letter outside the standard alphabet, data after padding, too much padding
    and a lone last letter are errors.

    Args:
        text: What holds the base64; never copied as a whole.
        start: Its first character.
        end: The character after its last one.

    Raises:
        MediaFetchError: It is not base64.
    """
    import pybase64

    rest = b""
    for offset in range(start, end, SLICE_CHARACTERS):
        try:
            letters = rest + text[offset : min(offset + SLICE_CHARACTERS, end)].encode("ascii").translate(None, _WHITE_SPACE)
            padding = letters.find(b"=")
            whole = (len(letters) if padding < 0 else padding) // 4 * 4
            rest = letters[whole:]
            if len(rest) > 4:
                raise binascii.Error("data after padding")
            if whole:
                yield pybase64.b64decode(letters[:whole], validate=True)
        except (binascii.Error, UnicodeEncodeError) as error:
            raise _not_base64() from error
    try:
        if rest:
            yield pybase64.b64decode(_pad(rest), validate=True)
    except binascii.Error as error:
        raise _not_base64() from error


def _pad(rest: bytes) -> bytes:
    letters = rest.rstrip(b"=")
    if len(letters) < 2 or len(rest) > 4:
        raise binascii.Error("wrong padding")
    return letters.ljust(4, b"=")


def _not_base64() -> MediaFetchError:
    message = "The data: URL holds something that is not base64 of the standard alphabet (A-Z a-z 0-9 + /, padded with =)."
    return MediaFetchError(message, stage="fetch")
