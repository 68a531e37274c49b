"""The chunks of a PNG: walked without decoding, and bounded, because tiny files can ask for minutes of work."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final, NamedTuple

from inset.errors import TooLargeError

__all__ = ["PngChunk", "check_png_chunks", "iter_png_chunks"]

_SIGNATURE_BYTES: Final = 8
_MAX_CHUNKS: Final = 65_536
_MAX_INFLATED_CHUNKS: Final = 64
_INFLATED: Final = frozenset((b"iTXt", b"zTXt", b"iCCP"))


class PngChunk(NamedTuple):
    """A chunk's kind, four bytes, and its body; the body is shorter than its length says where the file is cut off."""

    kind: bytes
    body: memoryview


def iter_png_chunks(data: bytes) -> Iterator[PngChunk]:
    """Yields the chunks of a PNG up to its end, without copying; checksums are not looked at."""
    view, position = memoryview(data), _SIGNATURE_BYTES
    while position + 8 <= len(view):
        length, kind = int.from_bytes(view[position : position + 4], "big"), bytes(view[position + 4 : position + 8])
        yield PngChunk(kind, view[position + 8 : position + 8 + length])
        if kind == b"IEND":
            return
        position += length + 12


def check_png_chunks(data: bytes) -> None:
    """Refuses a PNG with so many chunks that reading its header, or what stands behind its pixels, takes long.

    Pillow inflates every compressed text and profile, up to 1 MiB each, and counts none whose stream breaks at the end.

    Raises:
        TooLargeError: There are too many chunks, or too many of those that may be compressed.
    """
    num_inflated = 0
    for number, (kind, _) in enumerate(iter_png_chunks(data)):
        if number == _MAX_CHUNKS:
            raise TooLargeError(f"The PNG image has more than {_MAX_CHUNKS:,} chunks. Save it anew.")
        num_inflated += kind in _INFLATED
        if num_inflated > _MAX_INFLATED_CHUNKS:
            raise TooLargeError(f"The PNG image has more than {_MAX_INFLATED_CHUNKS} compressed texts and profiles. Save it anew.")
