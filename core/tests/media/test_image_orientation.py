"""Images that a note in their header turns: upright pixels, and a size that says so."""

from __future__ import annotations

import io
import zlib

import numpy as np
import pytest
from PIL import Image

from inset.testing.decoded_images import decode_image, load_image, pillow_rgb
from inset.testing.sample_images import encode_image, exif_block, make_pixels, make_png, png_chunk

PIXELS = make_pixels(48, 36)
PICTURE = Image.fromarray(PIXELS)


class TestOrientation:
    @pytest.mark.parametrize("orientation", range(1, 9))
    @pytest.mark.parametrize("image_format", ["JPEG", "PNG", "WEBP", "TIFF", "AVIF"])
    def test_exif_orientation_is_known_from_the_header_and_applied(self, image_format: str, orientation: int) -> None:
        lossless = {"WEBP": {"lossless": True}}.get(image_format, {})
        data = encode_image(PICTURE, image_format, exif=exif_block(orientation), **lossless)
        np.testing.assert_array_equal(decode_image(data), pillow_rgb(data))
        header = load_image(data).header
        assert (header.width, header.height) == ((48, 36) if orientation < 5 else (36, 48))

    def test_orientation_is_part_of_the_spec(self) -> None:
        ref = load_image(encode_image(PICTURE, "JPEG", exif=exif_block(8)))
        assert ref.spec.settings["orientation"] == ref.header.orientation == 8

    def test_png_exif_behind_the_pixels_is_found_without_decoding(self) -> None:
        behind = png_chunk(b"eXIf", exif_block(6).removeprefix(b"Exif\0\0"))
        rows = b"".join(b"\0" + row.tobytes() for row in PIXELS)
        data = make_png(48, 36, bit_depth=8, colour_type=2, packed_rows=zlib.compress(rows), behind=behind)
        ref = load_image(data)
        assert (ref.header.width, ref.header.height, ref.header.orientation) == (36, 48, 6)
        np.testing.assert_array_equal(ref.decode(), np.rot90(PIXELS, -1))
        np.testing.assert_array_equal(ref.decode(), pillow_rgb(data))

    @pytest.mark.parametrize("is_late", [False, True])
    @pytest.mark.parametrize("is_compressed", [False, True])
    def test_png_xmp_orientation_is_found(self, is_compressed: bool, is_late: bool) -> None:
        xmp = b'<x:xmpmeta><rdf:Description tiff:Orientation="3"/></x:xmpmeta>'
        text = b"XML:com.adobe.xmp\0" + bytes([is_compressed, 0]) + b"\0\0" + (zlib.compress(xmp) if is_compressed else xmp)
        chunk = png_chunk(b"iTXt", text)
        rows = zlib.compress(b"".join(b"\0" + row.tobytes() for row in PIXELS))
        place = {"behind" if is_late else "before": chunk}
        data = make_png(48, 36, bit_depth=8, colour_type=2, packed_rows=rows, **place)
        np.testing.assert_array_equal(decode_image(data), PIXELS[::-1, ::-1])

    @pytest.mark.parametrize("kind", [b"tEXt", b"zTXt"])
    def test_png_exif_as_hexadecimal_text_is_found(self, kind: bytes) -> None:
        block = exif_block(3)
        text = f"\nexif\n{len(block):8}\n{block.hex()}\n".encode()
        body = b"Raw profile type exif\0" + (b"\0" + zlib.compress(text) if kind == b"zTXt" else text)
        rows = zlib.compress(b"".join(b"\0" + row.tobytes() for row in PIXELS))
        data = make_png(48, 36, bit_depth=8, colour_type=2, packed_rows=rows, before=png_chunk(kind, body))
        np.testing.assert_array_equal(decode_image(data), pillow_rgb(data))
        assert load_image(data).header.orientation == 3

    @pytest.mark.parametrize("image_format", ["JPEG", "WEBP"])
    def test_xmp_orientation_counts_where_exif_says_none(self, image_format: str) -> None:
        xmp = b'<x:xmpmeta><rdf:Description tiff:Orientation="6"/></x:xmpmeta>'
        data = encode_image(PICTURE, image_format, xmp=xmp)
        assert load_image(data).header.orientation == 6
        np.testing.assert_array_equal(decode_image(data), pillow_rgb(data))

    @pytest.mark.filterwarnings("ignore:Corrupt EXIF data")
    @pytest.mark.parametrize(
        "block",
        [b"", b"Exif\0\0", b"Exif\0\0II*\0\xff\xff\xff\xff", b"Exif\0\0" + bytes(40), b"Exif\0\0MM\0*\0\0\0\x08\xff\xff", exif_block(9)],
    )
    def test_broken_exif_says_nothing_and_harms_nothing(self, block: bytes) -> None:
        plain = encode_image(PICTURE, "PNG")
        data = plain[:33] + png_chunk(b"eXIf", block.removeprefix(b"Exif\0\0")) + plain[33:]
        assert load_image(data).header.orientation == 1
        np.testing.assert_array_equal(decode_image(data), PIXELS)
        jpeg = encode_image(PICTURE, "JPEG", exif=block)
        assert load_image(jpeg).header.orientation == 1
        np.testing.assert_array_equal(decode_image(jpeg), np.asarray(Image.open(io.BytesIO(jpeg))))
