"""Images: whatever the file, upright RGB pixels, or a refusal that says why."""

from __future__ import annotations

import io
import struct
import subprocess
import sys
import zlib
from collections.abc import Callable, Mapping
from typing import Any, ClassVar

import numpy as np
import pytest
from numpy.typing import NDArray
from PIL import Image, ImageOps

from inset.config import MediaConfig
from inset.errors import InvalidRequestError, MediaDecodeError, TooLargeError
from inset.identity import JSON
from inset.media.header import MediaHeader
from inset.media.image import ImageIO
from inset.media.image_pixels import convert_mode
from inset.media.ref import MediaRef
from inset.testing.conformance.media_io import MediaIOConformance
from inset.testing.sample_images import deflated_zeros, encode_image, exif_block, make_pixels, make_png, png_chunk

PIXELS = make_pixels(48, 36)
PICTURE = Image.fromarray(PIXELS)
WHITE = (255, 255, 255)


def load(data: bytes, options: Mapping[str, JSON] | None = None, config: MediaConfig | None = None) -> MediaRef[NDArray[np.uint8]]:
    return ImageIO(options or {}, config or MediaConfig()).load_bytes_ref(data)


def decode(data: bytes, options: Mapping[str, JSON] | None = None) -> NDArray[np.uint8]:
    ref = load(data, options)
    array = ref.decode()
    assert array.shape[:2] == (ref.header.height, ref.header.width)
    assert array.nbytes == ref.header.decoded_bytes
    assert array.dtype == np.uint8
    assert array.flags.c_contiguous
    return array


def pillow_rgb(data: bytes) -> NDArray[np.uint8]:
    """What Pillow alone makes of a file without transparency."""
    image = Image.open(io.BytesIO(data))
    return np.asarray(ImageOps.exif_transpose(image).convert("RGB"))


class ImageConformance(MediaIOConformance):
    options: ClassVar[Mapping[str, JSON]] = {"image_mode": "RGB", "rgba_background_color": [1, 2, 3]}
    other_options: ClassVar[Mapping[str, JSON]] = {"rgba_background_color": [0, 0, 0]}

    def make_io(self, options: Mapping[str, JSON], config: MediaConfig) -> ImageIO:
        return ImageIO(options, config)

    def make_bomb(self) -> bytes:
        return make_png(3000, 3000, bit_depth=8, colour_type=0, packed_rows=deflated_zeros(3001 * 3000))

    def array_of(self, decoded: NDArray[np.uint8]) -> NDArray[np.uint8]:
        return decoded


class TestJpegConformance(ImageConformance):
    def make_media(self) -> bytes:
        return encode_image(PIXELS, "JPEG", quality=95, exif=exif_block(6))

    def check_decoded(self, decoded: NDArray[np.uint8], header: MediaHeader) -> None:
        assert (header.format, header.width, header.height, header.orientation) == ("JPEG", 36, 48, 6)
        assert decoded.shape == (48, 36, 3)
        assert np.abs(decoded.astype(int) - np.rot90(PIXELS, -1)).mean() < 4


class TestPngConformance(ImageConformance):
    def make_media(self) -> bytes:
        return encode_image(np.random.default_rng(0).integers(0, 255, (64, 48, 3), dtype=np.uint8), "PNG")

    def check_decoded(self, decoded: NDArray[np.uint8], header: MediaHeader) -> None:
        assert (header.format, header.width, header.height, header.mode) == ("PNG", 48, 64, "RGB")
        np.testing.assert_array_equal(decoded, np.random.default_rng(0).integers(0, 255, (64, 48, 3), dtype=np.uint8))


class TestFormats:
    @pytest.mark.parametrize("image_format", ["JPEG", "PNG", "WEBP", "GIF", "BMP", "TIFF", "AVIF", "JPEG2000"])
    def test_every_allowed_format_gives_the_pixels_that_pillow_gives(self, image_format: str) -> None:
        data = encode_image(PICTURE, image_format)
        np.testing.assert_array_equal(decode(data), pillow_rgb(data))
        assert load(data).header.format == image_format

    @pytest.mark.parametrize(
        "options", [{"progressive": True}, {"subsampling": 0}, {"subsampling": 2, "optimize": True}, {"quality": 5}], ids=str
    )
    def test_jpeg_variants_give_the_pixels_that_pillow_gives(self, options: dict[str, Any]) -> None:
        data = encode_image(make_pixels(123, 77), "JPEG", **options)
        np.testing.assert_array_equal(decode(data), pillow_rgb(data))

    @pytest.mark.parametrize(("width", "height"), [(2100, 1100), (7, 300_001), (2_100_001, 1)])
    def test_large_and_extreme_sizes_are_exact(self, width: int, height: int) -> None:
        pixels = make_pixels(width, height)
        np.testing.assert_array_equal(decode(encode_image(pixels, "PNG", compress_level=1)), pixels)

    @pytest.mark.parametrize(("width", "height"), [(1, 1), (1, 50), (50, 1), (3, 2000), (2000, 3)])
    def test_small_sizes_are_exact(self, width: int, height: int) -> None:
        pixels = make_pixels(width, height)
        for image_format in ("PNG", "BMP", "TIFF"):
            np.testing.assert_array_equal(decode(encode_image(pixels, image_format)), pixels)

    @pytest.mark.parametrize("image_format", ["GIF", "WEBP", "PNG", "TIFF", "AVIF"])
    def test_first_frame_stands_for_an_animation(self, image_format: str) -> None:
        frames = [Image.new("RGB", (16, 8), colour) for colour in ("red", "lime", "blue")]
        data = encode_image(frames[0], image_format, save_all=True, append_images=frames[1:])
        array = decode(data)
        assert array.shape == (8, 16, 3)
        assert np.abs(array.astype(int) - (255, 0, 0)).max() < 12

    @pytest.mark.parametrize(
        ("data", "name"),
        [
            (b'<svg xmlns="http://www.w3.org/2000/svg"/>', "SVG"),
            (b'\xef\xbb\xbf<?xml version="1.0"?>\n<!-- a -->\n<svg width="1"/>', "SVG"),
            (b"%PDF-1.7\n...", "PDF"),
            (b"%!PS-Adobe-3.0 EPSF-3.0\n", "EPS"),
            (b"\xc5\xd0\xd3\xc6" + bytes(28), "EPS"),
            (b"\xd7\xcd\xc6\x9a" + bytes(18), "WMF"),
            (b"\x01\0\0\0" + bytes(36) + b" EMF" + bytes(60), "EMF"),
            (b"\0\0\0\x18ftypheic\0\0\0\0mif1heic", "HEIC"),
            (b"\0\0\0\x18ftypmif1\0\0\0\0mif1heic", "HEIC"),
            (b"\0\0\x01\0\x01\0" + bytes(16), "icon"),
            (b"<!DOCTYPE html><html><body><svg></svg></body></html>", "HTML"),
            (b"\0\0\0\x18ftypisom\0\0\0\0isommp42", "video"),
            (b"8BPS\0\x01", "Photoshop"),
            (b"\xff\x0a\x00", "JPEG XL"),
        ],
    )
    def test_what_is_not_read_is_refused_by_name(self, data: bytes, name: str) -> None:
        with pytest.raises(MediaDecodeError, match=name) as caught:
            load(data)
        assert caught.value.code == "unsupported_image_format"
        assert "JPEG, PNG" in caught.value.message

    def test_refusal_of_text_takes_linear_time(self) -> None:
        with pytest.raises(MediaDecodeError):
            load(b"<?xml" + b"<!--" * 100_000)

    def test_formats_outside_the_list_stay_outside_even_if_pillow_reads_them(self) -> None:
        Image.init()
        for image_format in ("ICO", "PPM", "PCX", "TGA", "DDS"):
            with pytest.raises(MediaDecodeError):
                load(encode_image(PICTURE, image_format))

    def test_multi_picture_jpeg_gives_its_first(self) -> None:
        data = encode_image(PICTURE, "MPO", save_all=True, append_images=[Image.new("RGB", (48, 36))])
        np.testing.assert_array_equal(decode(data), pillow_rgb(data))


class TestOrientation:
    @pytest.mark.parametrize("orientation", range(1, 9))
    @pytest.mark.parametrize("image_format", ["JPEG", "PNG", "WEBP", "TIFF", "AVIF"])
    def test_exif_orientation_is_known_from_the_header_and_applied(self, image_format: str, orientation: int) -> None:
        lossless = {"WEBP": {"lossless": True}}.get(image_format, {})
        data = encode_image(PICTURE, image_format, exif=exif_block(orientation), **lossless)
        np.testing.assert_array_equal(decode(data), pillow_rgb(data))
        header = load(data).header
        assert (header.width, header.height) == ((48, 36) if orientation < 5 else (36, 48))

    def test_orientation_is_part_of_the_spec(self) -> None:
        ref = load(encode_image(PICTURE, "JPEG", exif=exif_block(8)))
        assert ref.spec.settings["orientation"] == ref.header.orientation == 8

    def test_png_exif_behind_the_pixels_is_found_without_decoding(self) -> None:
        behind = png_chunk(b"eXIf", exif_block(6).removeprefix(b"Exif\0\0"))
        rows = b"".join(b"\0" + row.tobytes() for row in PIXELS)
        data = make_png(48, 36, bit_depth=8, colour_type=2, packed_rows=zlib.compress(rows), behind=behind)
        ref = load(data)
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
        np.testing.assert_array_equal(decode(data), PIXELS[::-1, ::-1])

    @pytest.mark.parametrize("kind", [b"tEXt", b"zTXt"])
    def test_png_exif_as_hexadecimal_text_is_found(self, kind: bytes) -> None:
        block = exif_block(3)
        text = f"\nexif\n{len(block):8}\n{block.hex()}\n".encode()
        body = b"Raw profile type exif\0" + (b"\0" + zlib.compress(text) if kind == b"zTXt" else text)
        rows = zlib.compress(b"".join(b"\0" + row.tobytes() for row in PIXELS))
        data = make_png(48, 36, bit_depth=8, colour_type=2, packed_rows=rows, before=png_chunk(kind, body))
        np.testing.assert_array_equal(decode(data), pillow_rgb(data))
        assert load(data).header.orientation == 3

    @pytest.mark.parametrize("image_format", ["JPEG", "WEBP"])
    def test_xmp_orientation_counts_where_exif_says_none(self, image_format: str) -> None:
        xmp = b'<x:xmpmeta><rdf:Description tiff:Orientation="6"/></x:xmpmeta>'
        data = encode_image(PICTURE, image_format, xmp=xmp)
        assert load(data).header.orientation == 6
        np.testing.assert_array_equal(decode(data), pillow_rgb(data))

    @pytest.mark.filterwarnings("ignore:Corrupt EXIF data")
    @pytest.mark.parametrize(
        "block",
        [b"", b"Exif\0\0", b"Exif\0\0II*\0\xff\xff\xff\xff", b"Exif\0\0" + bytes(40), b"Exif\0\0MM\0*\0\0\0\x08\xff\xff", exif_block(9)],
    )
    def test_broken_exif_says_nothing_and_harms_nothing(self, block: bytes) -> None:
        plain = encode_image(PICTURE, "PNG")
        data = plain[:33] + png_chunk(b"eXIf", block.removeprefix(b"Exif\0\0")) + plain[33:]
        assert load(data).header.orientation == 1
        np.testing.assert_array_equal(decode(data), PIXELS)
        jpeg = encode_image(PICTURE, "JPEG", exif=block)
        assert load(jpeg).header.orientation == 1
        np.testing.assert_array_equal(decode(jpeg), np.asarray(Image.open(io.BytesIO(jpeg))))


class TestTransparency:
    def test_hidden_colours_show_the_background(self) -> None:
        rgba = np.zeros((4, 4, 4), np.uint8)
        rgba[..., :3] = (9, 200, 30)
        rgba[:2, :, 3] = 255
        data = encode_image(rgba, "PNG")
        array = decode(data)
        assert (array[:2] == (9, 200, 30)).all()
        assert (array[2:] == WHITE).all()
        assert (decode(data, {"rgba_background_color": [0, 0, 255]})[2:] == (0, 0, 255)).all()

    def test_half_transparent_pixels_are_mixed(self) -> None:
        data = encode_image(np.full((2, 2, 4), (0, 0, 0, 128), np.uint8), "PNG")
        assert np.abs(decode(data).astype(int) - 127).max() <= 1

    def test_grey_with_alpha(self) -> None:
        image = Image.merge("LA", (Image.new("L", (4, 4), 10), Image.new("L", (4, 4), 0)))
        assert (decode(encode_image(image, "PNG")) == 255).all()

    @pytest.mark.parametrize("transparency", [1, bytes([255, 0, 255])], ids=["index", "bytes"])
    def test_palette_with_transparency(self, transparency: int | bytes) -> None:
        image = Image.new("P", (3, 1))
        image.putpalette([255, 0, 0, 0, 255, 0, 0, 0, 255])
        image.putdata([0, 1, 2])
        assert decode(encode_image(image, "PNG", transparency=transparency)).tolist() == [[[255, 0, 0], [255, 255, 255], [0, 0, 255]]]

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
        assert decode(encode_image(image, "PNG")).tolist() == [[[1, 2, 3], [4, 5, 6]]]

    def test_transparent_gif(self) -> None:
        image = Image.new("P", (2, 1))
        image.putpalette([1, 2, 3, 4, 5, 6])
        image.putdata([0, 1])
        assert decode(encode_image(image, "GIF", transparency=1)).tolist() == [[[1, 2, 3], [255, 255, 255]]]

    @pytest.mark.parametrize(("mode", "colour"), [("RGB", (9, 9, 9)), ("L", 9), ("1", 0)])
    def test_transparent_colour_key(self, mode: str, colour: Any) -> None:
        data = encode_image(Image.new(mode, (2, 2), colour), "PNG", transparency=colour)
        assert (decode(data) == 255).all()

    def test_sixteen_bit_grey_with_a_transparent_level(self) -> None:
        rows = zlib.compress(b"\0" + struct.pack(">2H", 1000, 0))
        data = make_png(2, 1, bit_depth=16, colour_type=0, packed_rows=rows, before=png_chunk(b"tRNS", struct.pack(">H", 1000)))
        assert decode(data).tolist() == [[[255] * 3, [0] * 3]]

    def test_premultiplied_grey_and_colour_are_straightened(self) -> None:
        for mode, value in (("La", (64, 128)), ("RGBa", (64, 64, 64, 128))):
            straightened = np.asarray(convert_mode(Image.new(mode, (2, 2), value), "RGB", WHITE))
            assert np.abs(straightened.astype(int) - (64 + 127)).max() <= 1

    @pytest.mark.parametrize(("mode", "shape"), [("RGBA", (36, 48, 4)), ("L", (36, 48, 1)), ("RGB", (36, 48, 3))])
    def test_other_modes_can_be_asked_for(self, mode: str, shape: tuple[int, ...]) -> None:
        assert decode(encode_image(PICTURE.convert("RGBA"), "PNG"), {"image_mode": mode}).shape == shape

    def test_alpha_is_kept_where_it_is_asked_for(self) -> None:
        rgba = np.full((2, 2, 4), (1, 2, 3, 4), np.uint8)
        np.testing.assert_array_equal(decode(encode_image(rgba, "PNG"), {"image_mode": "RGBA"}), rgba)


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
        assert load(data).header.mode in {"I;16", "I;16B"}
        assert decode(data)[0, :, 0].tolist() == [0, 1, 1, 128, 255]

    def test_sixteen_bit_png_is_scaled(self) -> None:
        assert decode(encode_image(self.LEVELS, "PNG"))[0, :, 0].tolist() == [0, 1, 1, 128, 255]

    def test_thirty_two_bit_grey_counts_as_sixteen(self) -> None:
        data = encode_image(np.array([[-5, 0, 65535, 2**31 - 1]], np.int32), "TIFF")
        assert decode(data)[0, :, 0].tolist() == [0, 0, 255, 255]

    @pytest.mark.parametrize(
        ("values", "levels"), [([0.0, 0.5, 1.0], [0, 128, 255]), ([0.0, 99.6, 300.0], [0, 100, 255]), ([-1.0, 0.2], [0, 51])]
    )
    def test_float_grey_is_scaled(self, values: list[float], levels: list[int]) -> None:
        assert decode(encode_image(np.array([values], np.float32), "TIFF"))[0, :, 0].tolist() == levels

    def test_float_grey_with_what_is_no_number_is_refused(self) -> None:
        ref = load(encode_image(np.array([[0.5, np.nan]], np.float32), "TIFF"))
        with pytest.raises(MediaDecodeError, match="not numbers"):
            ref.decode()

    def test_one_bit(self) -> None:
        image = Image.new("1", (9, 3), 1)
        image.putpixel((4, 1), 0)
        assert decode(encode_image(image, "PNG"))[1, 3:6, 1].tolist() == [255, 0, 255]

    @pytest.mark.parametrize("has_marker", [True, False])
    def test_cmyk_is_taken_as_pillow_gives_it(self, has_marker: bool) -> None:
        data = encode_image(PICTURE.convert("CMYK"), "JPEG")
        marker = data.find(b"\xff\xeeAdobe"[:2])
        if not has_marker and marker >= 0:
            length = int.from_bytes(data[marker + 2 : marker + 4], "big")
            data = data[:marker] + data[marker + 2 + length :]
        assert load(data).header.mode == "CMYK"
        np.testing.assert_array_equal(decode(data), pillow_rgb(data))


class TestDamage:
    def test_truncated_pixels_fail_at_decode_with_the_place(self) -> None:
        ref = load(encode_image(make_pixels(200, 200), "JPEG")[:-300])
        with pytest.raises(MediaDecodeError, match="JPEG image is truncated or damaged") as caught:
            ref.decode()
        assert (caught.value.status, caught.value.stage, caught.value.modality) == (422, "decode", "image")

    @pytest.mark.parametrize("image_format", ["JPEG", "PNG", "WEBP", "GIF", "BMP", "TIFF", "AVIF", "JPEG2000"])
    def test_every_truncation_ends_in_an_error_or_an_image(self, image_format: str) -> None:
        data = encode_image(PICTURE, image_format)
        for length in range(1, len(data), max(1, len(data) // 60)):
            try:
                assert decode(data[:length]).shape == (36, 48, 3)
            except MediaDecodeError as error:
                assert error.modality == "image"  # noqa: PT017 - either outcome is right

    @pytest.mark.parametrize("image_format", ["JPEG", "PNG", "WEBP", "GIF", "BMP", "TIFF", "AVIF", "JPEG2000"])
    def test_every_damage_ends_in_an_error_or_an_image(self, image_format: str) -> None:
        data = encode_image(PICTURE, image_format)
        rng = np.random.default_rng(0)
        for turn in range(60):
            broken = bytearray(data)
            start = int(rng.integers(0, len(data)))
            length = len(broken[start : start + (8 if turn % 2 else 100)])
            broken[start : start + length] = rng.bytes(length) if turn % 2 else bytes(length)
            try:
                decode(bytes(broken))
            except (MediaDecodeError, TooLargeError) as error:
                assert error.modality == "image"  # noqa: PT017 - either outcome is right

    def test_label_that_lies_is_ignored_because_content_decides(self) -> None:
        assert load(encode_image(PICTURE, "PNG")).header.format == "PNG"

    def test_image_without_pixels_is_refused(self) -> None:
        with pytest.raises(MediaDecodeError):
            load(make_png(0, 5, bit_depth=8, colour_type=2, packed_rows=zlib.compress(b"")))

    def test_header_that_promises_more_than_there_is_gives_an_error_or_its_own_size(self) -> None:
        """Pillow leaves rows black that a complete PNG stream does not give; what was reserved still holds."""
        data = make_png(100, 100, bit_depth=8, colour_type=2, packed_rows=zlib.compress(bytes(301 * 3)))
        assert decode(data).shape == (100, 100, 3)
        with pytest.raises(MediaDecodeError):
            decode(make_png(100, 100, bit_depth=8, colour_type=2, packed_rows=zlib.compress(bytes(301 * 100))[:-6]))

    def test_decoded_size_other_than_the_headers_is_an_error(self) -> None:
        io_ = ImageIO({}, MediaConfig())
        data = encode_image(PICTURE, "PNG")
        with pytest.raises(MediaDecodeError, match="48x36 pixels, but its header said 36x48"):
            io_.load_bytes(data, MediaHeader(modality="image", width=36, height=48))

    def test_tiff_whose_tiles_are_far_larger_than_the_image_is_refused(self) -> None:
        entries = [(256, 16), (257, 16), (258, 8), (259, 8), (262, 1), (277, 1), (322, 65520), (323, 65520), (324, 200), (325, 10)]
        directory = struct.pack("<H", len(entries))
        for tag, value in entries:
            directory += struct.pack("<HHII", tag, 4, 1, value)
        with pytest.raises(MediaDecodeError, match="tiles"):
            load(b"II*\0\x08\0\0\0" + directory + bytes(200))


class TestCaps:
    def test_pixel_cap_is_held_at_fetch(self) -> None:
        data = encode_image(PICTURE, "PNG")
        assert load(data, config=MediaConfig(max_image_pixels=48 * 36)).header.width == 48
        with pytest.raises(TooLargeError, match="48x36") as caught:
            load(data, config=MediaConfig(max_image_pixels=48 * 36 - 1))
        assert (caught.value.status, caught.value.stage, caught.value.modality) == (413, "probe", "image")

    @pytest.mark.parametrize("make_bomb", ["png_bomb", "webp_bomb", "gif_bomb"])
    def test_bombs_are_refused_without_growing(self, make_bomb: str) -> None:
        """A process of its own measures, so that nobody else's memory counts."""
        done = subprocess.run([sys.executable, "-c", MEASURE_REFUSAL, make_bomb], capture_output=True, text=True, timeout=120, check=False)
        assert done.returncode == 0, done.stderr[-2000:]
        assert float(done.stdout) < 64


MEASURE_REFUSAL = """
import resource, struct, sys
from inset.config import MediaConfig
from inset.errors import TooLargeError
from inset.media.image import ImageIO
from inset.testing.sample_images import deflated_zeros, encode_image, make_png

def png_bomb():
    return make_png(30000, 30000, bit_depth=1, colour_type=0, packed_rows=deflated_zeros(3751 * 30000))

def webp_bomb():
    canvas = b"WEBPVP8X" + struct.pack("<I", 10) + bytes(4) + b"\\xff\\x3f\\0" * 2
    body = canvas + b"VP8L" + struct.pack("<I", 14) + b"\\x2f\\xff\\xff\\xff\\x0f" + bytes(9)
    return b"RIFF" + struct.pack("<I", len(body)) + body

def gif_bomb():
    screen = b"GIF89a" + struct.pack("<HHBBB", 65535, 65535, 0, 0, 0)
    return screen + b"," + struct.pack("<HHHHB", 0, 0, 65535, 65535, 0) + b"\\x08" + bytes(300)

data = globals()[sys.argv[1]]()
assert len(data) < 200_000, len(data)
io = ImageIO({}, MediaConfig())
io.load_bytes_ref(encode_image(__import__("PIL.Image").Image.new("RGB", (64, 64)), "WEBP"))
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
try:
    io.load_bytes_ref(data)
except Exception as error:
    assert type(error).__name__ in ("TooLargeError", "MediaDecodeError"), error
else:
    raise SystemExit("not refused")
print((resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) / 1024)
"""


class TestOptions:
    @pytest.mark.parametrize(
        ("options", "message"),
        [
            ({"image_mode": "CMYK"}, "image_mode"),
            ({"image_mode": 3}, "image_mode"),
            ({"rgba_background_color": [1, 2]}, "rgba_background_color"),
            ({"rgba_background_color": [1, 2, 256]}, "rgba_background_color"),
            ({"rgba_background_color": "white"}, "rgba_background_color"),
            ({"rgba_background_color": [True, 1, 1]}, "rgba_background_color"),
            ({"num_frames": 3, "fps": 2}, "fps, num_frames"),
        ],
    )
    def test_wrong_options_are_named(self, options: Mapping[str, JSON], message: str) -> None:
        with pytest.raises(InvalidRequestError, match=message) as caught:
            ImageIO(options, MediaConfig())
        assert caught.value.modality == "image"


class TestImageId:
    TRUSTING = MediaConfig(trust_exif_image_id=True)

    def make(self, image_id: str | None, pixels: NDArray[np.uint8] = PIXELS, image_format: str = "PNG") -> bytes:
        return encode_image(pixels, image_format, exif=exif_block(1, image_id=image_id))

    def test_is_ignored_unless_trusted(self) -> None:
        assert load(self.make("one")).key != load(self.make("one", PIXELS[::-1])).key
        assert load(self.make("one")).header.image_id is None

    def test_names_an_image_across_encodings_when_trusted(self) -> None:
        keys = {load(self.make("one", image_format=name), config=self.TRUSTING).key for name in ("PNG", "JPEG", "WEBP")}
        assert len(keys) == 1

    @pytest.mark.parametrize("change", [{"image_id": "two"}, {"pixels": PIXELS[:, :24]}])
    def test_another_id_or_another_size_is_another_item(self, change: Mapping[str, Any]) -> None:
        one = load(self.make("one"), config=self.TRUSTING)
        other = load(self.make(**{"image_id": "one", **change}), config=self.TRUSTING)
        assert one.key != other.key

    def test_other_options_are_another_item(self) -> None:
        data = self.make("one")
        assert load(data, config=self.TRUSTING).key != load(data, {"image_mode": "L"}, self.TRUSTING).key

    @pytest.mark.parametrize("image_id", [None, "", " "])
    def test_images_without_one_go_by_their_bytes(self, image_id: str | None) -> None:
        assert load(self.make(image_id), config=self.TRUSTING).key != load(self.make(image_id, PIXELS[::-1]), config=self.TRUSTING).key


IDENTICAL_BYTES: tuple[tuple[str, Callable[[], tuple[bytes, bytes]]], ...] = (
    ("size", lambda: (encode_image(np.zeros((2, 8, 3), np.uint8), "PNG"), encode_image(np.zeros((8, 2, 3), np.uint8), "PNG"))),
    ("mode", lambda: (encode_image(Image.new("L", (4, 4)), "PNG"), encode_image(Image.new("1", (4, 4)), "PNG"))),
    ("palette", lambda: (_with_palette([0, 0, 0]), _with_palette([9, 9, 9]))),
)


def _with_palette(palette: list[int]) -> bytes:
    image = Image.new("P", (4, 4))
    image.putpalette(palette)
    return encode_image(image, "PNG")


@pytest.mark.parametrize(("what", "make"), IDENTICAL_BYTES, ids=[name for name, _ in IDENTICAL_BYTES])
def test_equal_pixel_bytes_of_other_size_mode_or_palette_are_other_items(what: str, make: Callable[[], tuple[bytes, bytes]]) -> None:
    first, second = make()
    assert load(first).key != load(second).key, what


def test_equal_long_prefixes_are_other_items() -> None:
    data = encode_image(make_pixels(300, 300), "PNG")
    assert load(data + b"\0").key != load(data + b"\1").key


def test_hashing_decodes_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    loads: list[Image.Image] = []
    load_pixels = Image.Image.load

    def count(image: Image.Image) -> Any:
        loads.append(image)
        return load_pixels(image)

    monkeypatch.setattr(Image.Image, "load", count)
    for image_format in ("JPEG", "PNG", "GIF", "BMP"):
        ref = load(encode_image(PIXELS, image_format))
        loads.clear()
        assert len(ref.key) == 32
        assert (ref.is_decoded, loads) == (False, [])
