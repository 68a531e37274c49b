"""The boxes of an AVIF: read without decoding, and bounded, because an item may hold any number of frames, of any size."""

from __future__ import annotations

import struct
from collections.abc import Iterator
from itertools import chain
from typing import Final

from inset.errors import MediaDecodeError, TooLargeError
from inset.media.av1_units import MAX_AV1_FRAMES, has_too_many_frames, sequence_pixels
from inset.media.boxes import iter_boxes

__all__ = ["check_avif_boxes", "check_avif_frames"]

_LISTS: Final = ((b"iinf",), (b"iloc",), (b"iref",), (b"iprp", b"ipma"))
_MAX_LIST_BYTES: Final = 64 * 1024
_MAX_EXTENTS: Final = 65_536
_MIN_PIXELS: Final = 1024**2
_IN_FILE: Final = 0
_TRACK: Final = (b"moov", b"trak")
_SAMPLES: Final = (b"mdia", b"minf", b"stbl")


def check_avif_boxes(data: bytes) -> None:
    """Refuses an AVIF that lists thousands of items: opening it takes the square of their number.

    Raises:
        TooLargeError: A list is too long.
    """
    for meta in _iter_metas(memoryview(data)):
        for path in _LISTS:
            if sum(map(len, _find(meta, *path))) > _MAX_LIST_BYTES:
                raise TooLargeError("The AVIF image has too many items. Save it anew.")


def check_avif_frames(data: bytes, pixels: int) -> None:
    """Refuses an AVIF whose items, or the first picture of whose sequence, are more work than the image is.

    libavif decodes every frame that an item holds, whatever their size, and scales one of them.

    Args:
        data: The encoded image; `check_avif_boxes` let it pass.
        pixels: What its header says.

    Raises:
        TooLargeError: There are more frames than any real image has.
        MediaDecodeError: Frames are far larger than the image, or the places of items cannot be read.
    """
    try:
        for coded in _iter_coded(data):
            if has_too_many_frames(coded):
                raise TooLargeError(f"The AVIF image has an item of more than {MAX_AV1_FRAMES} frames. Save it anew.")
            if sequence_pixels(coded) > 4 * max(pixels, _MIN_PIXELS):
                raise MediaDecodeError("The AVIF image holds frames that are far larger than it says.")
    except (struct.error, IndexError) as error:
        raise MediaDecodeError("The AVIF image has a damaged header.") from error


def _find(view: memoryview, *path: bytes) -> Iterator[memoryview]:
    """Yields the bodies of boxes that lie inside of others, from the outermost kind to the innermost."""
    if len(path) == 1:
        return iter_boxes(view, path[0])
    return chain.from_iterable(_find(body, *path[1:]) for body in iter_boxes(view, path[0]))


def _iter_metas(view: memoryview) -> Iterator[memoryview]:
    return (meta[4:] for meta in chain(_find(view, b"meta"), _find(view, *_TRACK, b"meta")))


def _iter_coded(data: bytes) -> Iterator[memoryview]:
    view = memoryview(data)
    for meta in _iter_metas(view):
        idat = next(_find(meta, b"idat"), memoryview(b""))
        for table in _find(meta, b"iloc"):
            yield from _iter_items(view, idat, table)
    for samples in _find(view, *_TRACK, *_SAMPLES):
        yield from _iter_first_samples(view, samples)


def _iter_items(view: memoryview, idat: memoryview, table: memoryview) -> Iterator[memoryview]:
    """Yields what each item of a location table holds, its extents joined; none is copied but those in several."""
    version, sizes = table[0], (table[4] >> 4, table[4] & 15, table[5] >> 4, table[5] & 15 if table[0] else 0)
    reader = _Numbers(table, 6)
    num_extents = num_joined_bytes = 0
    for _ in range(reader.read(4 if version == 2 else 2)):
        reader.read(4 if version == 2 else 2)
        source = view if not version or reader.read(2) & 15 == _IN_FILE else idat
        reader.read(2)
        base = reader.read(sizes[2])
        extents: list[memoryview] = []
        for _ in range(reader.read(2)):
            num_extents += 1
            if num_extents > _MAX_EXTENTS:
                raise TooLargeError("The AVIF image has too many items. Save it anew.")
            reader.read(sizes[3])
            start, length = base + reader.read(sizes[0]), reader.read(sizes[1])
            extents.append(source[start : start + length])
        num_joined_bytes += sum(map(len, extents)) if len(extents) > 1 else 0
        if num_joined_bytes > len(view):
            raise TooLargeError("The AVIF image has items that are longer than the file.")
        yield memoryview(b"".join(extents)) if len(extents) > 1 else next(iter(extents), memoryview(b""))


class _Numbers:
    """Reads whole numbers one after the other; those of no bytes are 0."""

    def __init__(self, view: memoryview, position: int) -> None:
        self._view, self._position = view, position

    def read(self, num_bytes: int) -> int:
        start, self._position = self._position, self._position + num_bytes
        if self._position > len(self._view):
            raise IndexError("the table is cut off")
        return int.from_bytes(self._view[start : self._position], "big")


def _iter_first_samples(view: memoryview, samples: memoryview) -> Iterator[memoryview]:
    """Yields the first picture of a track: no other is decoded."""
    for sizes in iter_boxes(samples, b"stsz"):
        same, number = struct.unpack_from(">LL", sizes, 4)
        size = same or (struct.unpack_from(">L", sizes, 12)[0] if number else 0)
        for kind, code in ((b"stco", ">L"), (b"co64", ">Q")):
            for offsets in iter_boxes(samples, kind):
                (start,) = struct.unpack_from(code, offsets, 8)
                yield view[start : start + size]
