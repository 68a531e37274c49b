"""JPEG 2000 files of a hundred bytes that ask for gigabytes of book-keeping: refused at fetch, before OpenJPEG sets anything up."""

from __future__ import annotations

import struct

import pytest

from inset.errors import MediaDecodeError, TooLargeError
from inset.testing.decoded_images import load_image
from inset.testing.sample_images import encode_image, make_pixels

UNKNOWN = b"\xff\x4e\x00\x04ab"


def segment(marker: int, body: bytes) -> bytes:
    return struct.pack(">HH", marker, len(body) + 2) + body


def style(*, blocks: int = 6, precincts: bytes = b"") -> bytes:
    return bytes((max(len(precincts) - 1, 0), blocks - 2, blocks - 2, 0, 1)) + precincts


def coding(*, layers: int = 1, blocks: int = 6, precincts: bytes = b"") -> bytes:
    """Says how a part is coded; sizes are exponents of two, of precincts one byte a level."""
    flags = bytes((bool(precincts), 2))
    return segment(0xFF52, flags + struct.pack(">H", layers) + b"\0" + style(blocks=blocks, precincts=precincts))


def component_coding(*, blocks: int = 6, precincts: bytes = b"") -> bytes:
    return segment(0xFF53, bytes((0, bool(precincts))) + style(blocks=blocks, precincts=precincts))


def codestream(header: bytes = b"", *, side: int = 300, tile: int = 300, tile_header: bytes = b"", num_parts: int = 1) -> bytes:
    """Returns the beginning of a square image in square tiles."""
    size = segment(0xFF51, struct.pack(">H8LH", 0, side, side, 0, 0, tile, tile, 0, 0, 1) + b"\7\1\1")
    part = struct.pack(">HHHLBB", 0xFF90, 10, 0, 14 + len(tile_header), 0, 1) + tile_header + b"\xff\x93"
    return b"\xff\x4f" + size + (header or coding()) + segment(0xFF5C, b"\x40\x40") + part * num_parts + b"\xff\xd9"


def boxed(stream: bytes) -> bytes:
    def box(kind: bytes, body: bytes) -> bytes:
        return struct.pack(">L", len(body) + 8) + kind + body

    header = box(b"ihdr", struct.pack(">LLHBBBB", 300, 300, 1, 7, 7, 0, 0)) + box(b"colr", b"\1\0\0\0\0\0\x11")
    return box(b"jP  ", b"\r\n\x87\n") + box(b"ftyp", b"jp2 \0\0\0\0jp2 ") + box(b"jp2h", header) + box(b"jp2c", stream)


@pytest.mark.parametrize(
    ("data", "problem"),
    [
        (codestream(coding(precincts=b"\0")), "precincts or code-blocks"),
        (codestream(coding(precincts=b"\x11\x11")), "precincts or code-blocks"),
        (boxed(codestream(coding(precincts=b"\0"))), "precincts or code-blocks"),
        (codestream(coding(blocks=2), side=1000, tile=1000), "precincts or code-blocks"),
        (codestream(coding() + component_coding(precincts=b"\0")), "precincts or code-blocks"),
        (codestream(tile_header=coding(precincts=b"\0")), "precincts or code-blocks"),
        (codestream(coding(layers=65_535, precincts=b"\x44")), "packets"),
        (codestream(component_coding(precincts=b"\x44") + coding(layers=65_535)), "packets"),
        (codestream(tile=4), "4,096 tiles"),
        (codestream(num_parts=65_537), "parts"),
        (codestream(b"".join(coding(layers=number) for number in range(65))), "ways of coding"),
    ],
)
def test_countless_parts_are_refused(data: bytes, problem: str) -> None:
    with pytest.raises(TooLargeError, match=problem) as caught:
        load_image(data)
    assert (caught.value.stage, caught.value.modality) == ("probe", "image")


@pytest.mark.parametrize(
    "data",
    [
        codestream(UNKNOWN + coding()),
        codestream(segment(0xFF52, b"\1")),
        codestream(coding(precincts=b"\x11\x11")[:-1]),
        codestream(tile=0),
    ],
)
def test_header_that_readers_may_understand_differently_is_refused(data: bytes) -> None:
    with pytest.raises(MediaDecodeError, match="damaged header"):
        load_image(data)


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"tile_size": (64, 64)},
        {"codeblock_size": (16, 16)},
        {"codeblock_size": (4, 4)},
        {"precinct_size": (64, 64)},
        {"num_resolutions": 1},
        {"progression": "RPCL", "quality_layers": [40, 20, 10]},
        {"no_jp2": True},
    ],
)
def test_real_images_are_read(options: dict[str, object]) -> None:
    assert load_image(encode_image(make_pixels(320, 240), "JPEG2000", **options)).decode().shape == (240, 320, 3)
