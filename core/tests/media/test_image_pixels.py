"""Transparency, grey and print: the RGB that decoding gives of each mode."""

from __future__ import annotations

import struct
import zlib
from typing import Any

import numpy as np
import pytest
from PIL import Image

from inset.errors import MediaDecodeError
from inset.media.image_pixels import convert_mode
from inset.testing.decoded_images import decode_image, load_image, pillow_rgb
from inset.testing.sample_images import encode_image, make_pixels, make_png, png_chunk

PIXELS = make_pixels(48, 36)
PICTURE = Image.fromarray(PIXELS)
WHITE = (255, 255, 255)


class TestTransparency:
    def test_hidden_colours_show_the_background(self) -> None:
        rgba = np.zeros((4, 4, 4), np.uint8)
        rgba[..., :3] = (9, 200, 30)
        rgba[:2, :, 3] = 255
        data = encode_image(rgba, "PNG")
        array = decode_image(data)
        assert (array[:2] == (9, 200, 30)).all()
        assert (array[2:] == WHITE).all()
        assert (decode_image(data, {"rgba_background_color": [0, 0, 255]})[2:] == (0, 0, 255)).all()

    def test_half_transparent_pixels_are_mixed(self) -> None:
        data = encode_image(np.full((2, 2, 4), (0, 0, 0, 128), np.uint8), "PNG")
        assert np.abs(decode_image(data).astype(int) - 127).max() <= 1

    def test_grey_with_alpha(self) -> None:
        image = Image.merge("LA", (Image.new("L", (4, 4), 10), Image.new("L", (4, 4), 0)))
        assert (decode_image(encode_image(image, "PNG")) == 255).all()

    @pytest.mark.parametrize("transparency", [1, bytes([255, 0, 255])], ids=["index", "bytes"])
    def test_palette_with_transparency(self, transparency: int | bytes) -> None:
        image = Image.new("P", (3, 1))
        image.putpalette([255, 0, 0, 0, 255, 0, 0, 0, 255])
        image.putdata([0, 1, 2])
        assert decode_image(encode_image(image, "PNG", transparency=transparency)).tolist() == [[[255, 0, 0], [255, 255, 255], [0, 0, 255]]]

    def test_palette_with_an_alpha_channel(self) -> None:
        """Mode PA, which no file holds as such: what an embedder hands over in memory."""
        image = Image.new("PA", (2, 1))
        image.putpalette([0, 0, 0, 200, 10, 20])
        image.putdata([(1, 0), (1, 255)])
        assert convert_mode(image, "RGB", WHITE).getpixel((0, 0)) == WHITE
        assert convert_mode(image, "RGB", WHITE).getpixel((1, 0)) == (200, 10, 20)

    def test_palette_without_transparency(self) -> None:
        image = Image.new("P", (2, 1))
        image.putpalette([1, 2, 3, 4, 5, 6])
        image.putdata([0, 1])
        assert decode_image(encode_image(image, "PNG")).tolist() == [[[1, 2, 3], [4, 5, 6]]]

    def test_transparent_gif(self) -> None:
        image = Image.new("P", (2, 1))
        image.putpalette([1, 2, 3, 4, 5, 6])
        image.putdata([0, 1])
        assert decode_image(encode_image(image, "GIF", transparency=1)).tolist() == [[[1, 2, 3], [255, 255, 255]]]

    @pytest.mark.parametrize(("mode", "colour"), [("RGB", (9, 9, 9)), ("L", 9), ("1", 0)])
    def test_transparent_colour_key(self, mode: str, colour: Any) -> None:
        data = encode_image(Image.new(mode, (2, 2), colour), "PNG", transparency=colour)
        assert (decode_image(data) == 255).all()

    def test_sixteen_bit_grey_with_a_transparent_level(self) -> None:
        rows = zlib.compress(b"\0" + struct.pack(">2H", 1000, 0))
        data = make_png(2, 1, bit_depth=16, colour_type=0, packed_rows=rows, before=png_chunk(b"tRNS", struct.pack(">H", 1000)))
        assert decode_image(data).tolist() == [[[255] * 3, [0] * 3]]

    def test_premultiplied_grey_and_colour_are_straightened(self) -> None:
        for mode, value in (("La", (64, 128)), ("RGBa", (64, 64, 64, 128))):
            straightened = np.asarray(convert_mode(Image.new(mode, (2, 2), value), "RGB", WHITE))
            assert np.abs(straightened.astype(int) - (64 + 127)).max() <= 1

    @pytest.mark.parametrize(("mode", "shape"), [("RGBA", (36, 48, 4)), ("L", (36, 48, 1)), ("RGB", (36, 48, 3))])
    def test_other_modes_can_be_asked_for(self, mode: str, shape: tuple[int, ...]) -> None:
        assert decode_image(encode_image(PICTURE.convert("RGBA"), "PNG"), {"image_mode": mode}).shape == shape

    def test_alpha_is_kept_where_it_is_asked_for(self) -> None:
        rgba = np.full((2, 2, 4), (1, 2, 3, 4), np.uint8)
        np.testing.assert_array_equal(decode_image(encode_image(rgba, "PNG"), {"image_mode": "RGBA"}), rgba)


class TestGreyAndPrint:
    LEVELS = np.array([[0, 256, 257, 32768, 65535]], np.uint16)

    @pytest.mark.parametrize("byte_order", ["<", ">"])
    def test_sixteen_bit_grey_is_scaled_in_both_byte_orders(self, byte_order: str) -> None:
        magic = b"II*\0" if byte_order == "<" else b"MM\0*"
        entries = [(256, 3, 5), (257, 3, 1), (258, 3, 16), (259, 3, 1), (262, 3, 1), (273, 4, 122), (277, 3, 1), (278, 3, 1), (279, 4, 10)]
        directory = struct.pack(byte_order + "H", len(entries))
        for tag, kind, value in entries:
            directory += struct.pack(byte_order + ("HHIHxx" if kind == 3 else "HHII"), tag, kind, 1, value)
        data = magic + struct.pack(byte_order + "I", 8) + directory + bytes(4)
        data += self.LEVELS.astype(byte_order + "u2").tobytes()
        assert load_image(data).header.mode in {"I;16", "I;16B"}
        assert decode_image(data)[0, :, 0].tolist() == [0, 1, 1, 128, 255]

    def test_sixteen_bit_png_is_scaled(self) -> None:
        assert decode_image(encode_image(self.LEVELS, "PNG"))[0, :, 0].tolist() == [0, 1, 1, 128, 255]

    def test_thirty_two_bit_grey_counts_as_sixteen(self) -> None:
        data = encode_image(np.array([[-5, 0, 65535, 2**31 - 1]], np.int32), "TIFF")
        assert decode_image(data)[0, :, 0].tolist() == [0, 0, 255, 255]

    @pytest.mark.parametrize(
        ("values", "levels"), [([0.0, 0.5, 1.0], [0, 128, 255]), ([0.0, 99.6, 300.0], [0, 100, 255]), ([-1.0, 0.2], [0, 51])]
    )
    def test_float_grey_is_scaled(self, values: list[float], levels: list[int]) -> None:
        assert decode_image(encode_image(np.array([values], np.float32), "TIFF"))[0, :, 0].tolist() == levels

    def test_float_grey_with_what_is_no_number_is_refused(self) -> None:
        ref = load_image(encode_image(np.array([[0.5, np.nan]], np.float32), "TIFF"))
        with pytest.raises(MediaDecodeError, match="not numbers"):
            ref.decode()

    def test_one_bit(self) -> None:
        image = Image.new("1", (9, 3), 1)
        image.putpixel((4, 1), 0)
        assert decode_image(encode_image(image, "PNG"))[1, 3:6, 1].tolist() == [255, 0, 255]

    @pytest.mark.parametrize("has_marker", [True, False])
    def test_cmyk_is_taken_as_pillow_gives_it(self, has_marker: bool) -> None:
        data = encode_image(PICTURE.convert("CMYK"), "JPEG")
        marker = data.find(b"\xff\xeeAdobe"[:2])
        if not has_marker and marker >= 0:
            length = int.from_bytes(data[marker + 2 : marker + 4], "big")
            data = data[:marker] + data[marker + 2 + length :]
        assert load_image(data).header.mode == "CMYK"
        np.testing.assert_array_equal(decode_image(data), pillow_rgb(data))
