"""Counts what a JPEG makes its readers do, marker by marker, because tiny files can ask for minutes of work."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Final, NamedTuple

from inset.errors import TooLargeError

__all__ = ["check_jpeg_markers"]

# Within coded data a zero behind 0xff stands for the byte itself, and D0 to D7 only part the data.
_MARKER: Final = re.compile(rb"\xff[^\x00\xff\xd0-\xd7]")
_SEARCHED_BYTES: Final = 128 * 1024
_WITHOUT_BODY: Final = frozenset((*range(0xC0), 0xC8, *range(0xD0, 0xDA), *range(0xF0, 0xFE)))
_END_OF_IMAGE: Final = 0xD9
_SCAN: Final = 0xDA
_EXIF: Final = 0xE1

_MAX_MARKERS: Final = 4096
_MAX_SCANS: Final = 64
_MAX_EXIF_SEGMENTS: Final = 64


class _Marker(NamedTuple):
    """A marker's code, and where the bytes behind it begin."""

    code: int
    position: int


def check_jpeg_markers(data: bytes) -> None:
    """Refuses a JPEG whose header would be read, or whose pixels would be decoded, over and over again.

    Pillow copies all EXIF so far for each further segment of it, and libjpeg goes over the whole image for each scan of a progressive one.
    Real files have one or two segments and some ten scans. The walk ends where the first image of the file does.

    Raises:
        TooLargeError: There are too many markers, scans or EXIF segments.
    """
    num_scans = num_exif = 0
    for number, marker in enumerate(_iter_markers(data)):
        if number == _MAX_MARKERS:
            raise TooLargeError(f"The JPEG image has more than {_MAX_MARKERS:,} segments. Save it anew.")
        if marker.code == _SCAN:
            num_scans += 1
            if num_scans > _MAX_SCANS:
                raise TooLargeError(f"The JPEG image has more than {_MAX_SCANS} scans. Save it anew.")
        elif marker.code == _EXIF and data.startswith(b"Exif\0\0", marker.position + 2):
            num_exif += 1
            if num_exif > _MAX_EXIF_SEGMENTS:
                raise TooLargeError(f"The JPEG image has more than {_MAX_EXIF_SEGMENTS} EXIF segments. Save it anew.")
        elif marker.code == _END_OF_IMAGE and num_scans:
            return


def _iter_markers(data: bytes) -> Iterator[_Marker]:
    """Yields the markers at which Pillow and libjpeg stop: whatever else stands between segments is passed over, as they do."""
    position = 0
    while (marker := _next_marker(data, position)) is not None:
        yield marker
        position = marker.position
        if marker.code not in _WITHOUT_BODY:
            position += max(2, int.from_bytes(data[position : position + 2], "big"))


def _next_marker(data: bytes, position: int) -> _Marker | None:
    """Searches piece by piece: a search holds the interpreter, and coded data can be long."""
    while position < len(data):
        if match := _MARKER.search(data, position, position + _SEARCHED_BYTES + 1):
            return _Marker(data[match.end() - 1], match.end())
        position += _SEARCHED_BYTES
    return None
