"""How much memory decoding an image takes beside its result: known from the header, so that it can be reserved."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from PIL.TiffImagePlugin import TiffImageFile

from inset.media.image_pixels import STRIP_PIXELS
from inset.media.tiff_tags import tile_pixels

if TYPE_CHECKING:
    from PIL import Image

__all__ = ["image_peak_bytes"]

# Bytes for each pixel. Pillow stores a pixel of several channels, or of 32 bits, in four bytes.
_PLAIN: Final = 9
_TRANSPARENT: Final = 14
_WIDE_GREY: Final = 17
_PROGRESSIVE_JPEG: Final = 13  # the coefficients of up to four channels, two bytes each, wait for the last scan
_WEBP: Final = 22
_AVIF: Final = 18
_JPEG_2000: Final = 5  # for each channel, whose values are whole numbers of 32 bits on the way, and once more
_TILE: Final = 4
_COPY: Final = 5


def image_peak_bytes(image: Image.Image) -> int:
    """Returns the most bytes that exist at one time while an image is decoded, turned and converted, the result included.

    Measured with Pillow 13 and rounded up; small fixed costs of a decoder are left out.

    Args:
        image: Opened and not loaded.
    """
    per_pixel = max(_decoding(image), _converting(image))
    copy = min(image.width * image.height, STRIP_PIXELS) * _COPY
    tiles = tile_pixels(image) * _TILE if isinstance(image, TiffImageFile) else 0
    return image.width * image.height * per_pixel + copy + tiles


def _decoding(image: Image.Image) -> int:
    """Pillow does not say which JPEG is progressive but in its notes."""
    match image.format:
        case "JPEG" | "MPO":
            return _PROGRESSIVE_JPEG if "progressive" in image.info else _PLAIN
        case "WEBP":
            return _WEBP
        case "AVIF":
            return _AVIF
        case "JPEG2000":
            return _JPEG_2000 * (len(image.getbands()) + 1)
    return _PLAIN


def _converting(image: Image.Image) -> int:
    if image.mode == "F" or image.mode.startswith("I"):
        return _WIDE_GREY + (_TRANSPARENT if "transparency" in image.info else 0)
    return _TRANSPARENT if image.has_transparency_data else _PLAIN
