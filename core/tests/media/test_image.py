"""Images: whatever the file, upright RGB pixels, or a refusal that says why."""

from __future__ import annotations

import struct
import subprocess
import sys
import zlib
from collections.abc import Callable, Mapping
from typing import Any, ClassVar

import numpy as np
import pytest
from numpy.typing import NDArray
from PIL import Image

from inset.config import MediaConfig
from inset.errors import InvalidRequestError, MediaDecodeError, TooLargeError
from inset.identity import JSON
from inset.media.header import MediaHeader
from inset.media.image import ImageIO
from inset.testing.conformance.media_io import MediaIOConformance
from inset.testing.decoded_images import decode_image, load_image, pillow_rgb
from inset.testing.sample_images import deflated_zeros, encode_image, exif_block, make_pixels, make_png

PIXELS = make_pixels(48, 36)
PICTURE = Image.fromarray(PIXELS)


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
        np.testing.assert_array_equal(decode_image(data), pillow_rgb(data))
        assert load_image(data).header.format == image_format

    @pytest.mark.parametrize(
        "options", [{"progressive": True}, {"subsampling": 0}, {"subsampling": 2, "optimize": True}, {"quality": 5}], ids=str
    )
    def test_jpeg_variants_give_the_pixels_that_pillow_gives(self, options: dict[str, Any]) -> None:
        data = encode_image(make_pixels(123, 77), "JPEG", **options)
        np.testing.assert_array_equal(decode_image(data), pillow_rgb(data))

    @pytest.mark.parametrize(("width", "height"), [(2100, 1100), (7, 300_001), (2_100_001, 1)])
    def test_large_and_extreme_sizes_are_exact(self, width: int, height: int) -> None:
        pixels = make_pixels(width, height)
        np.testing.assert_array_equal(decode_image(encode_image(pixels, "PNG", compress_level=1)), pixels)

    @pytest.mark.parametrize(("width", "height"), [(1, 1), (1, 50), (50, 1), (3, 2000), (2000, 3)])
    def test_small_sizes_are_exact(self, width: int, height: int) -> None:
        pixels = make_pixels(width, height)
        for image_format in ("PNG", "BMP", "TIFF"):
            np.testing.assert_array_equal(decode_image(encode_image(pixels, image_format)), pixels)

    @pytest.mark.parametrize("image_format", ["GIF", "WEBP", "PNG", "TIFF", "AVIF"])
    def test_first_frame_stands_for_an_animation(self, image_format: str) -> None:
        frames = [Image.new("RGB", (16, 8), colour) for colour in ("red", "lime", "blue")]
        data = encode_image(frames[0], image_format, save_all=True, append_images=frames[1:])
        array = decode_image(data)
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
            load_image(data)
        assert caught.value.code == "unsupported_image_format"
        assert "JPEG, PNG" in caught.value.message

    def test_refusal_of_text_takes_linear_time(self) -> None:
        with pytest.raises(MediaDecodeError):
            load_image(b"<?xml" + b"<!--" * 100_000)

    def test_formats_outside_the_list_stay_outside_even_if_pillow_reads_them(self) -> None:
        Image.init()
        for image_format in ("ICO", "PPM", "PCX", "TGA", "DDS"):
            with pytest.raises(MediaDecodeError):
                load_image(encode_image(PICTURE, image_format))

    def test_multi_picture_jpeg_gives_its_first(self) -> None:
        data = encode_image(PICTURE, "MPO", save_all=True, append_images=[Image.new("RGB", (48, 36))])
        np.testing.assert_array_equal(decode_image(data), pillow_rgb(data))


class TestDamage:
    def test_truncated_pixels_fail_at_decode_with_the_place(self) -> None:
        ref = load_image(encode_image(make_pixels(200, 200), "JPEG")[:-300])
        with pytest.raises(MediaDecodeError, match="JPEG image is truncated or damaged") as caught:
            ref.decode()
        assert (caught.value.status, caught.value.stage, caught.value.modality) == (422, "decode", "image")

    @pytest.mark.parametrize("image_format", ["JPEG", "PNG", "WEBP", "GIF", "BMP", "TIFF", "AVIF", "JPEG2000"])
    def test_every_truncation_ends_in_an_error_or_an_image(self, image_format: str) -> None:
        data = encode_image(PICTURE, image_format)
        for length in range(1, len(data), max(1, len(data) // 60)):
            try:
                assert decode_image(data[:length]).shape == (36, 48, 3)
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
                decode_image(bytes(broken))
            except (MediaDecodeError, TooLargeError) as error:
                assert error.modality == "image"  # noqa: PT017 - either outcome is right

    def test_label_that_lies_is_ignored_because_content_decides(self) -> None:
        assert load_image(encode_image(PICTURE, "PNG")).header.format == "PNG"

    def test_image_without_pixels_is_refused(self) -> None:
        with pytest.raises(MediaDecodeError):
            load_image(make_png(0, 5, bit_depth=8, colour_type=2, packed_rows=zlib.compress(b"")))

    def test_header_that_promises_more_than_there_is_gives_an_error_or_its_own_size(self) -> None:
        """Pillow leaves rows black that a complete PNG stream does not give; what was reserved still holds."""
        data = make_png(100, 100, bit_depth=8, colour_type=2, packed_rows=zlib.compress(bytes(301 * 3)))
        assert decode_image(data).shape == (100, 100, 3)
        with pytest.raises(MediaDecodeError):
            decode_image(make_png(100, 100, bit_depth=8, colour_type=2, packed_rows=zlib.compress(bytes(301 * 100))[:-6]))

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
            load_image(b"II*\0\x08\0\0\0" + directory + bytes(200))


class TestCaps:
    def test_pixel_cap_is_held_at_fetch(self) -> None:
        data = encode_image(PICTURE, "PNG")
        assert load_image(data, config=MediaConfig(max_image_pixels=48 * 36)).header.width == 48
        with pytest.raises(TooLargeError, match="48x36") as caught:
            load_image(data, config=MediaConfig(max_image_pixels=48 * 36 - 1))
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
        assert load_image(self.make("one")).key != load_image(self.make("one", PIXELS[::-1])).key
        assert load_image(self.make("one")).header.image_id is None

    def test_names_an_image_across_encodings_when_trusted(self) -> None:
        keys = {load_image(self.make("one", image_format=name), config=self.TRUSTING).key for name in ("PNG", "JPEG", "WEBP")}
        assert len(keys) == 1

    @pytest.mark.parametrize("change", [{"image_id": "two"}, {"pixels": PIXELS[:, :24]}])
    def test_another_id_or_another_size_is_another_item(self, change: Mapping[str, Any]) -> None:
        one = load_image(self.make("one"), config=self.TRUSTING)
        other = load_image(self.make(**{"image_id": "one", **change}), config=self.TRUSTING)
        assert one.key != other.key

    def test_other_options_are_another_item(self) -> None:
        data = self.make("one")
        assert load_image(data, config=self.TRUSTING).key != load_image(data, {"image_mode": "L"}, self.TRUSTING).key

    @pytest.mark.parametrize("image_id", [None, "", " "])
    def test_images_without_one_go_by_their_bytes(self, image_id: str | None) -> None:
        assert (
            load_image(self.make(image_id), config=self.TRUSTING).key
            != load_image(self.make(image_id, PIXELS[::-1]), config=self.TRUSTING).key
        )


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
    assert load_image(first).key != load_image(second).key, what


def test_equal_long_prefixes_are_other_items() -> None:
    data = encode_image(make_pixels(300, 300), "PNG")
    assert load_image(data + b"\0").key != load_image(data + b"\1").key


def test_hashing_decodes_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    loads: list[Image.Image] = []
    load_pixels = Image.Image.load

    def count(image: Image.Image) -> Any:
        loads.append(image)
        return load_pixels(image)

    monkeypatch.setattr(Image.Image, "load", count)
    for image_format in ("JPEG", "PNG", "GIF", "BMP"):
        ref = load_image(encode_image(PIXELS, image_format))
        loads.clear()
        assert len(ref.key) == 32
        assert (ref.is_decoded, loads) == (False, [])
