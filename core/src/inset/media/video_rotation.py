"""How far a video has to be turned, as its container says; PyAV tells it only of decoded frames."""

from __future__ import annotations

import math
import re
import struct
from typing import Final

from inset.media.boxes import iter_boxes

__all__ = ["find_rotation"]

# Projection (7670), holding ProjectionPoseRoll (7675) as a float of 4 or 8 bytes, in degrees counter-clockwise.
_MATROSKA_ROLL: Final = re.compile(rb"\x76\x70.{1,64}?\x76\x75(?:\x84(.{4})|\x88(.{8}))", re.DOTALL)
_MATROSKA_HEADER_BYTES: Final = 64 * 1024


def find_rotation(data: bytes, container_format: str, track_id: int) -> int:
    """Returns the clockwise turn in degrees that shows a track upright: 0, 90, 180 or 270; other angles count as the nearest."""
    if container_format == "mp4":
        degrees = _find_mp4_rotation(data, track_id)
    elif container_format == "matroska":
        degrees = _find_matroska_rotation(data)
    else:
        degrees = 0.0
    return round(degrees / 90) * 90 % 360 if math.isfinite(degrees) else 0


def _find_mp4_rotation(data: bytes, track_id: int) -> float:
    """Reads the display matrix of the track's header box: rows (a, b, u), (c, d, v), (x, y, w) in fixed point."""
    view = memoryview(data)
    for moov in iter_boxes(view, b"moov"):
        for trak in iter_boxes(moov, b"trak"):
            for tkhd in iter_boxes(trak, b"tkhd"):
                is_long = tkhd[0] == 1 if len(tkhd) else False
                id_at = 20 if is_long else 12
                matrix_at = id_at + 4 + (4 + 8 if is_long else 4 + 4) + 16
                if len(tkhd) >= matrix_at + 36 and struct.unpack_from(">I", tkhd, id_at)[0] == track_id:
                    a, b = struct.unpack_from(">ii", tkhd, matrix_at)
                    return math.degrees(math.atan2(b, a))
    return 0.0


def _find_matroska_rotation(data: bytes) -> float:
    match = _MATROSKA_ROLL.search(data, 0, _MATROSKA_HEADER_BYTES)
    if match is None:
        return 0.0
    value: float = struct.unpack(">f", match[1])[0] if match[1] else struct.unpack(">d", match[2])[0]
    return -value
