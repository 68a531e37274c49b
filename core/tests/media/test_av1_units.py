"""What the units of AV1 say without being decoded."""

from __future__ import annotations

import io

import av
import pytest
from PIL import Image

from inset.media.av1_units import has_too_many_frames, sequence_pixels
from inset.testing.sample_clips import make_video
from inset.testing.sample_images import encode_image


@pytest.mark.parametrize(("width", "height"), [(64, 48), (1, 1), (1001, 77)])
def test_still_picture_says_how_large_its_frames_are(width: int, height: int) -> None:
    data = encode_image(Image.new("RGB", (width, height)), "AVIF")
    coded = data[data.index(b"mdat") + 4 :]
    assert (sequence_pixels(coded), has_too_many_frames(coded)) == (width * height, False)


@pytest.mark.parametrize(
    ("fields", "pixels"),
    [
        ("000 0 0" + "0" + "0" + "00000" + "0" * 12 + "01000" + "1" + "0101 0100 111111 01111", 64 * 16),
        ("000 0 0" + "1" + "0" * 64 + "1" + "001" + "01" + "0" + "0" + "00000" + "0" * 12 + "00000" + "0001 0001 11 10", 12),
        ("000 0 0" + "1" + "0" * 64 + "0" + "1" + "00011" + "0" * 42 + "1" + "00001"
         + ("0" * 12 + "00000" + "1" + "0" * 9 + "1" + "0000") * 2 + "0001 0001 11 10", 12),
    ],
    ids=["tier", "timing", "operating points"],
)  # fmt: skip
def test_size_is_found_behind_all_that_may_stand_before_it(fields: str, pixels: int) -> None:
    bits = fields.replace(" ", "")
    body = int(bits.ljust(-(-len(bits) // 8) * 8, "0"), 2).to_bytes(-(-len(bits) // 8), "big")
    assert sequence_pixels(bytes((0x0A, len(body))) + body) == pixels


def test_clip_says_how_large_its_frames_are() -> None:
    clip = make_video(2, container="matroska", codec="libsvtav1", options={"preset": "12"})
    with av.open(io.BytesIO(clip)) as container:
        stream = container.streams.video[0]
        assert sequence_pixels(next(bytes(packet) for packet in container.demux(stream))) == stream.width * stream.height


def test_what_is_no_sequence_header_says_nothing() -> None:
    assert sequence_pixels(b"") == sequence_pixels(b"\x12\0") == 0
