"""JPEG files that ask for far more work than they have bytes: refused at fetch, before Pillow or libjpeg reads them."""

from __future__ import annotations

import struct
from collections.abc import Iterable

import pytest

from inset.errors import TooLargeError
from inset.media.jpeg_markers import check_jpeg_markers
from inset.testing.decoded_images import decode_image, load_image
from inset.testing.sample_images import encode_image, exif_block, make_pixels

JPEG = encode_image(make_pixels(40, 30), "JPEG")
PROGRESSIVE = encode_image(make_pixels(40, 30), "JPEG", progressive=True)
SCAN = PROGRESSIVE[PROGRESSIVE.rindex(b"\xff\xda") : -2]
NUM_SCANS = PROGRESSIVE.count(b"\xff\xda")


def segment(code: int, body: bytes) -> bytes:
    return b"\xff" + bytes([code]) + struct.pack(">H", 2 + len(body)) + body


def with_segments(parts: Iterable[bytes]) -> bytes:
    return JPEG[:2] + b"".join(parts) + JPEG[2:]


def with_scans(number: int) -> bytes:
    return PROGRESSIVE[:-2] + SCAN * (number - NUM_SCANS) + PROGRESSIVE[-2:]


EXIF = segment(0xE1, b"Exif\0\0" + b"x" * 10)


def test_real_files_are_read() -> None:
    assert 3 < NUM_SCANS < 20
    assert decode_image(PROGRESSIVE).shape == (30, 40, 3)
    assert load_image(with_segments([segment(0xE1, exif_block(6)), *[segment(0xE2, bytes(9000))] * 200])).header.orientation == 6


@pytest.mark.parametrize(
    "data",
    [
        with_segments([EXIF] * 65),
        with_segments([EXIF, b"garbage\0\xff\0\xff\xff"] * 65),
        with_segments([b"\xff\xd9", *[EXIF] * 65]),
        with_segments([b"\xff\xf0\xff\xff" + EXIF * 65]),
        with_segments([b"\xff\xc8\xff\xff" + EXIF * 65]),
        with_segments([b"\xff\xe0\0\0" + EXIF * 65]),
    ],
    ids=["plain", "between garbage", "behind an end", "behind a marker without a length", "behind an unused marker", "behind no length"],
)
def test_exif_in_countless_segments_is_refused_wherever_pillow_would_find_it(data: bytes) -> None:
    with pytest.raises(TooLargeError, match="64 EXIF segments") as caught:
        load_image(data)
    assert (caught.value.stage, caught.value.modality) == ("probe", "image")


def test_countless_segments_of_any_kind_are_refused() -> None:
    with pytest.raises(TooLargeError, match="4,096 segments"):
        load_image(with_segments([segment(0xFE, b"")] * 5000))


def test_countless_scans_are_refused_before_the_image_is_decoded() -> None:
    assert load_image(with_scans(64)).header.width == 40
    with pytest.raises(TooLargeError, match="64 scans"):
        load_image(with_scans(65))


def test_what_parts_the_coded_data_is_no_marker() -> None:
    """Restart markers, stuffed zeros and fill bytes, at the borders of the pieces that are searched too."""
    for filling in (b"\xff\xd3", b"\xff\0", b"\xff\xff", b"\0"):
        for odd in (b"", b"\1"):
            data = with_scans(63)[:-2] + odd + filling * 200_000
            check_jpeg_markers(data + SCAN + b"\xff\xd9")
            with pytest.raises(TooLargeError, match="64 scans"):
                check_jpeg_markers(data + SCAN * 2 + b"\xff\xd9")


def test_what_stands_behind_the_first_image_does_not_count() -> None:
    assert load_image(with_scans(64) + JPEG * 3).header.width == 40
