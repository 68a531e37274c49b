"""Tags of TIFF files and of EXIF blocks that make much of little."""

from __future__ import annotations

import io
import struct
import tracemalloc
import warnings

import pytest
from PIL import Image

from inset.config import MIB, MediaConfig
from inset.errors import MediaDecodeError
from inset.media.image import ImageIO

WIDTH = HEIGHT = 8
PIXELS = ((256, WIDTH), (257, HEIGHT), (258, 8), (259, 1), (262, 1), (273, 8), (278, HEIGHT), (279, WIDTH * HEIGHT))
UNDEFINED, SHORT = 7, 3


def directory(offset: int, facts: tuple[tuple[int, int], ...], *, num_tags: int, region_bytes: int) -> bytes:
    """An image file directory whose further tags all have the same region behind it for their data."""
    region = offset + 2 + 12 * (len(facts) + num_tags) + 4
    entries = [struct.pack("<HHII", tag, SHORT, 1, value) for tag, value in facts]
    entries += [struct.pack("<HHII", 1000 + number, UNDEFINED, region_bytes, region) for number in range(num_tags)]
    return struct.pack("<H", len(entries)) + b"".join(entries) + bytes(4) + b"\1" * region_bytes


def make_image(kind: str, **tags: int) -> bytes:
    if kind == "TIFF":
        end_of_pixels = 8 + WIDTH * HEIGHT
        return b"II*\0" + struct.pack("<I", end_of_pixels) + bytes(WIDTH * HEIGHT) + directory(end_of_pixels, PIXELS, **tags)
    exif = b"II*\0" + struct.pack("<I", 8) + directory(8, ((274, 1),), **tags)
    buffer = io.BytesIO()
    Image.new("RGB", (WIDTH, HEIGHT)).save(buffer, kind, exif=exif)
    return buffer.getvalue()


@pytest.mark.parametrize(
    ("kind", "num_tags", "region_bytes"), [("TIFF", 2000, 100_000), ("JPEG", 1500, 40_000), ("PNG", 2000, 100_000), ("WEBP", 2000, 100_000)]
)
def test_tags_that_share_one_region_do_not_multiply_it(kind: str, num_tags: int, region_bytes: int) -> None:
    data = make_image(kind, num_tags=num_tags, region_bytes=region_bytes)
    media_io = ImageIO({}, MediaConfig())
    media_io.probe(make_image(kind, num_tags=1, region_bytes=8))  # whatever is loaded once
    tracemalloc.start()
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # Pillow names each tag that it leaves out
            try:
                header = media_io.probe(data)
            except MediaDecodeError:
                pass
            else:
                assert (header.width, header.height) == (WIDTH, HEIGHT)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert num_tags * region_bytes > 50 * MIB
    assert peak < 16 * MIB
