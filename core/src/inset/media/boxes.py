"""The boxes that MP4, AVIF and JPEG 2000 are made of."""

from __future__ import annotations

import struct
from collections.abc import Iterator

__all__ = ["iter_boxes"]


def iter_boxes(view: memoryview, kind: bytes) -> Iterator[memoryview]:
    """Yields the bodies of the boxes of one kind that lie directly inside, without copying."""
    position = 0
    while position + 8 <= len(view):
        size, header = struct.unpack_from(">I", view, position)[0], 8
        if size == 1 and position + 16 <= len(view):
            size, header = struct.unpack_from(">Q", view, position + 8)[0], 16
        elif size == 0:
            size = len(view) - position
        if size < header:
            return
        if view[position + 4 : position + 8] == kind:
            yield view[position + header : position + size]
        position += size
