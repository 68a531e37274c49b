"""The markers of a JPEG 2000: read without decoding, and bounded, because a hundred bytes can ask for gigabytes of book-keeping."""

from __future__ import annotations

import re
import struct
from typing import Final, NamedTuple

from inset.errors import MediaDecodeError, TooLargeError
from inset.media.boxes import iter_boxes

__all__ = ["check_jpeg2000_markers"]

_CODESTREAM: Final = b"\xff\x4f\xff\x51"
_TILE_PART: Final = re.compile(rb"\xff\x90\x00\x0a")  # coded data never holds it
_TILE_PART_BYTES: Final = 12
_CODING: Final = 0xFF52
_COMPONENT_CODING: Final = 0xFF53
_HEADER_ENDS: Final = frozenset((0xFF90, 0xFF93, 0xFFD9))
_KNOWN: Final = frozenset((*range(0xFF50, 0xFF65), *range(0xFF74, 0xFF79)))
_MAX_TILES: Final = 4096
_MAX_TILE_PARTS: Final = 65_536
_MAX_CODINGS: Final = 64
_MAX_BLOCKS: Final = 16_384
_PIXELS_PER_BLOCK: Final = 256
_MAX_PACKETS: Final = 2**24
_WHOLE: Final = 0xFF  # precincts as large as they can be


class _Size(NamedTuple):
    """What a codestream says of its size."""

    width: int
    height: int
    num_tiles: int
    num_components: int


class _Coding(NamedTuple):
    """How a part is coded: its layers, 0 where it keeps those of others; the exponents of its code-blocks; those of precincts, by level."""

    num_layers: int
    across: int
    down: int
    precincts: bytes


def check_jpeg2000_markers(data: bytes) -> None:
    """Refuses a JPEG 2000 that has its decoder set up far more tiles, precincts, code-blocks or packets than a picture of its size has.

    OpenJPEG sets them up before it reads any: half a kilobyte for each precinct and code-block, and those may be single pixels.

    Raises:
        MediaDecodeError: A header is cut off or damaged.
        TooLargeError: There are too many parts.
    """
    view = memoryview(data)
    try:
        for codestream in (view,) if data.startswith(_CODESTREAM) else iter_boxes(view, b"jp2c"):
            _check_codestream(codestream)
    except (struct.error, IndexError) as error:
        raise MediaDecodeError("The JPEG 2000 image has a damaged header.") from error


def _check_codestream(codestream: memoryview) -> None:
    size = _read_size(codestream)
    if size.num_tiles > _MAX_TILES:
        raise TooLargeError(f"The JPEG 2000 image has more than {_MAX_TILES:,} tiles. Save it anew.")
    codings = _read_codings(codestream, 2, size.num_components)
    for number, tile_part in enumerate(_TILE_PART.finditer(codestream)):
        codings |= _read_codings(codestream, tile_part.start() + _TILE_PART_BYTES, size.num_components)
        if number == _MAX_TILE_PARTS or len(codings) > _MAX_CODINGS:
            raise TooLargeError("The JPEG 2000 image has too many parts, or ways of coding them. Save it anew.")
    num_layers = max((coding.num_layers for coding in codings), default=0)
    for coding in codings:
        _check_coding(coding, size, num_layers)


def _read_size(codestream: memoryview) -> _Size:
    right, bottom, left, top, tile_width, tile_height, tile_left, tile_top, components = struct.unpack_from(">8LH", codestream, 8)
    if not tile_width or not tile_height or right <= left or bottom <= top:
        raise MediaDecodeError("The JPEG 2000 image has a damaged header.")
    num_tiles = _ceil(right - tile_left, tile_width) * _ceil(bottom - tile_top, tile_height)
    return _Size(right - left, bottom - top, num_tiles, components)


def _read_codings(codestream: memoryview, position: int, num_components: int) -> set[_Coding]:
    """Walks the segments of one header up to its end. OpenJPEG searches on behind markers that it does not know, so there may be none."""
    codings: set[_Coding] = set()
    while position + 4 <= len(codestream):
        marker, length = struct.unpack_from(">HH", codestream, position)
        if marker in _HEADER_ENDS or length < 2:
            break
        if marker not in _KNOWN:
            raise MediaDecodeError("The JPEG 2000 image has a damaged header: it holds an unknown marker.")
        body = bytes(codestream[position + 4 : position + 2 + length])
        if marker == _CODING:
            codings.add(_read_coding(body[0], body[5:], int.from_bytes(body[2:4], "big")))
        elif marker == _COMPONENT_CODING:
            body = body[1 if num_components < 257 else 2 :]
            codings.add(_read_coding(body[0], body[1:], 0))
        position += 2 + length
    return codings


def _read_coding(flags: int, style: bytes, num_layers: int) -> _Coding:
    num_levels = style[0] + 1
    precincts = style[5 : 5 + num_levels] if flags & 1 else bytes((_WHOLE,)) * num_levels
    if len(precincts) < num_levels:
        raise MediaDecodeError("The JPEG 2000 image has a damaged header.")
    return _Coding(num_layers, style[1] + 2, style[2] + 2, precincts)


def _check_coding(coding: _Coding, size: _Size, num_layers: int) -> None:
    """Counts as if the whole image were one tile coded this way."""
    num_blocks = most_precincts = 0
    for level, precinct in enumerate(reversed(coding.precincts)):
        is_lowest = level == len(coding.precincts) - 1
        half = 0 if is_lowest else 1  # all but the lowest level are three bands of half the size
        across, down = precinct & 15, precinct >> 4
        width, height = _ceil(size.width, 1 << level), _ceil(size.height, 1 << level)
        columns = _ceil(width, 1 << (min(coding.across, max(across - half, 0)) + half))
        rows = _ceil(height, 1 << (min(coding.down, max(down - half, 0)) + half))
        num_blocks += columns * rows * (1 if is_lowest else 3)
        most_precincts = max(most_precincts, _ceil(width, 1 << across) * _ceil(height, 1 << down))
    if num_blocks > _MAX_BLOCKS + size.width * size.height // _PIXELS_PER_BLOCK:
        raise TooLargeError("The JPEG 2000 image has too many precincts or code-blocks for its size. Save it anew.")
    if most_precincts * num_layers * len(coding.precincts) * size.num_components > _MAX_PACKETS:
        raise TooLargeError(f"The JPEG 2000 image has more than {_MAX_PACKETS:,} packets. Save it anew.")


def _ceil(dividend: int, divisor: int) -> int:
    return -(-dividend // divisor)
