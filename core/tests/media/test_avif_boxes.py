"""AVIF files that are far more work than their pictures: refused at fetch, before libavif opens or decodes them."""

from __future__ import annotations

import io
import struct

import pytest
from PIL import Image

from inset.errors import MediaDecodeError, TooLargeError
from inset.testing.decoded_images import load_image
from inset.testing.sample_images import encode_image, exif_block, make_pixels

PICTURE = encode_image(make_pixels(64, 48), "AVIF")
CODED = PICTURE[PICTURE.index(b"mdat") + 4 :]
FRAME = CODED[CODED.index(b"\x0a") + 2 + CODED[CODED.index(b"\x0a") + 1] :]  # behind the sequence header: one unit, the frame
PLACE = PICTURE.index(b"iloc") + 12  # behind version, sizes and number: ID, data reference, number of extents, extents


def replace(data: bytes, position: int, *numbers: int) -> bytes:
    written = struct.pack(f">{len(numbers)}L", *numbers)
    return data[:position] + written + data[position + len(written) :]


def moved(coded: bytes) -> bytes:
    """Returns the picture with other coded data, at the end of the file."""
    return replace(PICTURE, PLACE + 6, len(PICTURE), len(coded)) + coded


def animation(coded: bytes | None = None) -> bytes:
    """Returns two pictures, the first with other coded data, at the end of the file, before the second."""
    buffer = io.BytesIO()
    first, second = (Image.fromarray(make_pixels(64, 48)[::step]) for step in (1, -1))
    first.save(buffer, "AVIF", save_all=True, append_images=[second])
    data = buffer.getvalue()
    if coded is None:
        return data
    data = replace(data, data.index(b"stsz") + 16, len(coded))
    return replace(data, data.index(b"stco") + 12, len(data)) + coded + CODED


def test_item_of_countless_frames_is_refused() -> None:
    assert load_image(moved(CODED + FRAME * 63)).decode().shape == (48, 64, 3)
    with pytest.raises(TooLargeError, match="64 frames") as caught:
        load_image(moved(CODED + FRAME * 64))
    assert (caught.value.stage, caught.value.modality) == ("probe", "image")


def test_sequence_whose_first_picture_has_countless_frames_is_refused() -> None:
    assert load_image(animation()).decode().shape == (48, 64, 3)
    assert load_image(animation(CODED)).decode().shape == (48, 64, 3)
    with pytest.raises(TooLargeError, match="64 frames"):
        load_image(animation(CODED + FRAME * 64))


def test_frames_far_larger_than_the_image_are_refused() -> None:
    large = encode_image(Image.new("L", (2100, 2100)), "AVIF", speed=10)
    size = large.index(b"ispe") + 8
    assert load_image(replace(large, size, 2100, 2100)).header.width == 2100
    with pytest.raises(MediaDecodeError, match="far larger"):
        load_image(replace(large, size, 64, 48))


def test_countless_items_are_refused_before_they_are_listed() -> None:
    start = PICTURE.index(b"iinf") - 4
    (size,) = struct.unpack_from(">L", PICTURE, start)
    entries = b"".join(struct.pack(">L4sLLH5s", 23, b"infe", 3 << 24, number, 0, b"Exif\0") for number in range(1, 3000))
    items = struct.pack(">L4sLL", len(entries) + 16, b"iinf", 1 << 24, 2999) + entries
    meta = PICTURE.index(b"meta") - 4
    (meta_size,) = struct.unpack_from(">L", PICTURE, meta)
    with pytest.raises(TooLargeError, match="too many items"):
        load_image(replace(PICTURE[:start] + items + PICTURE[start + size :], meta, meta_size - size + len(items)))


def test_table_that_is_cut_off_is_an_error() -> None:
    with pytest.raises(MediaDecodeError, match="damaged header"):
        load_image(replace(PICTURE, PLACE, 0x0001_0000, 0xFFFF_0000))


@pytest.mark.parametrize(
    "options", [{}, {"quality": 100}, {"subsampling": "4:4:4"}, {"tile_rows": 1, "tile_cols": 1}, {"exif": exif_block(1)}]
)
@pytest.mark.parametrize("mode", ["RGB", "RGBA", "L"])
def test_real_images_are_read(mode: str, options: dict[str, object]) -> None:
    picture = Image.fromarray(make_pixels(320, 240)).convert(mode)
    assert load_image(encode_image(picture, "AVIF", **options)).decode().shape == (240, 320, 3)
