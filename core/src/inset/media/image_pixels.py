"""From whatever pixel mode a file has to one array: the only place where pixel values are changed."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import numpy as np
from PIL import Image

from inset.errors import MediaDecodeError

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from inset.media.decoded import ImagePixels

__all__ = ["NUM_CHANNELS", "STRIP_PIXELS", "convert_mode", "pixels_of", "turn_upright"]

NUM_CHANNELS: Final = {"RGB": 3, "L": 1, "RGBA": 4}
"""The image modes that can be asked for, with their channels."""

_TURNS: Final = {
    2: Image.Transpose.FLIP_LEFT_RIGHT,
    3: Image.Transpose.ROTATE_180,
    4: Image.Transpose.FLIP_TOP_BOTTOM,
    5: Image.Transpose.TRANSPOSE,
    6: Image.Transpose.ROTATE_270,
    7: Image.Transpose.TRANSVERSE,
    8: Image.Transpose.ROTATE_90,
}
_STRIP_ROWS: Final = 32
STRIP_PIXELS: Final = 2 * 1024**2
"""Pixels up to which an image is handed over whole, with a copy on the way, and above which strip by strip."""


def turn_upright(image: Image.Image, orientation: int) -> Image.Image:
    """Returns the image with an EXIF orientation, 1 to 8, applied."""
    return image.transpose(_TURNS[orientation]) if orientation in _TURNS else image


def convert_mode(image: Image.Image, mode: str, background: tuple[int, int, int]) -> Image.Image:
    """Returns a decoded image in one of `NUM_CHANNELS`; transparent parts show the background, except where RGBA is asked for.

    Grey of more than 8 bits is scaled to 8 bits. CMYK is taken as Pillow gives it.

    Raises:
        MediaDecodeError: A float pixel is not a number.
    """
    if image.mode == mode == "RGB" and "transparency" not in image.info:
        return image
    if image.mode.startswith("I") or image.mode == "F":
        image = _narrow_grey(image)
    elif image.mode == "La":
        image = _straighten_grey(image)
    if image.has_transparency_data:
        image = image if image.mode == "RGBA" else image.convert("RGBA")
        if mode != "RGBA":
            image = _lay_on(image, background)
    return image if image.mode == mode else image.convert(mode)


def pixels_of(image: Image.Image) -> ImagePixels:
    """Returns a fresh, writable array ``(height, width, channels)`` uint8 of a decoded image in one of `NUM_CHANNELS`."""
    width, height = image.size
    if width * height <= STRIP_PIXELS:
        return np.array(image, dtype=np.uint8).reshape(height, width, -1)
    # Pillow hands over its pixels as one byte string, which doubles the memory traffic of large images: go by strips that fit the cache.
    pixels = np.empty((height, width, NUM_CHANNELS[image.mode]), dtype=np.uint8)
    for top in range(0, height, _STRIP_ROWS):
        bottom = min(height, top + _STRIP_ROWS)
        pixels[top:bottom] = np.asarray(image.crop((0, top, width, bottom))).reshape(bottom - top, width, -1)
    return pixels


def _lay_on(image: Image.Image, background: tuple[int, int, int]) -> Image.Image:
    alpha = image.getchannel("A")
    if alpha.getextrema() == (255, 255):
        return image.convert("RGB")
    laid = Image.new("RGB", image.size, background)
    laid.paste(image, mask=alpha)
    return laid


def _narrow_grey(image: Image.Image) -> Image.Image:
    """Scales grey of 16 bits by 1/257 and floats from [0, 1] to 8 bits, because a plain conversion clamps both to white.

    Integers of 32 bits count as 16 bits, clamped; floats above 1 count as levels up to 255.
    """
    values = np.asarray(image)
    if image.mode == "F":
        if not np.isfinite(values).all():
            raise MediaDecodeError("The image has pixels that are not numbers.")
        scale = np.float32(255.0 if values.max() <= 1.0 else 1.0)
        levels: NDArray[np.uint8] = np.clip(np.rint(values * scale), 0, 255).astype(np.uint8)
    else:
        levels = ((np.clip(values, 0, 65535).astype(np.uint32) + 128) // 257).astype(np.uint8)
    narrow = Image.fromarray(levels)
    transparent = image.info.get("transparency")
    if isinstance(transparent, int | float):
        alpha = np.where(values == transparent, np.uint8(0), np.uint8(255))
        narrow = Image.merge("LA", (narrow, Image.fromarray(alpha)))
    return narrow


def _straighten_grey(image: Image.Image) -> Image.Image:
    """Takes the alpha out of grey that was multiplied by it; Pillow knows no way from La to other modes."""
    grey, alpha = (np.asarray(image)[..., channel].astype(np.uint32) for channel in (0, 1))
    straight = np.minimum((grey * 255 + alpha // 2) // np.maximum(alpha, 1), 255).astype(np.uint8)
    return Image.merge("LA", (Image.fromarray(straight), Image.fromarray(alpha.astype(np.uint8))))
