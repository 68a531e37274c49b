"""The tags of a TIFF: looked at before Pillow reads them, because each strip or tile that they name costs memory and work."""

from __future__ import annotations

import struct
from typing import Final

from PIL import ExifTags
from PIL.TiffImagePlugin import TiffImageFile

from inset.errors import MediaDecodeError, TooLargeError

__all__ = ["check_tiff_tags", "check_tiff_tiles", "tile_pixels"]

_MAX_TAGS: Final = 4096
_MAX_VALUES: Final = 262_144
_BYTE_TYPES: Final = frozenset((1, 2, 6, 7))  # stay one string of bytes
_TILE_OFFSETS: Final = frozenset((ExifTags.Base.StripOffsets, ExifTags.Base.TileOffsets))
_MIN_TILE_PIXELS: Final = 1024**2


def check_tiff_tags(data: bytes) -> None:
    """Refuses a TIFF whose first directory has so many tags or values that reading them takes long.

    Pillow makes objects of some 200 bytes from each value, and of some 400 from the place of each strip or tile.

    Raises:
        TooLargeError: There are too many tags, or too many values of one.
    """
    order = "<" if data.startswith(b"II") else ">"
    is_big = data.startswith(b"II+")
    offset, number, entry = ("Q", "Q", "HHQ8x") if is_big else ("L", "H", "HHL4x")
    try:
        (position,) = struct.unpack_from(order + offset, data, 8 if is_big else 4)
        (num_tags,) = struct.unpack_from(order + number, data, position)
        if num_tags > _MAX_TAGS:
            raise TooLargeError(f"The TIFF image has more than {_MAX_TAGS:,} tags. Save it anew.")
        position += struct.calcsize(order + number)
        entries = struct.iter_unpack(order + entry, data[position : position + num_tags * struct.calcsize(order + entry)])
        for tag, kind, num_values in entries:
            if num_values > _MAX_VALUES and (kind not in _BYTE_TYPES or tag in _TILE_OFFSETS):
                raise TooLargeError(f"The TIFF image has a tag of more than {_MAX_VALUES:,} values. Save it anew.")
    except struct.error as error:
        raise MediaDecodeError("The TIFF image has a damaged header.") from error


def check_tiff_tiles(image: TiffImageFile) -> None:
    """Refuses tiles that are far larger than the image, and tiles or strips that cover it again and again.

    Raises:
        MediaDecodeError: Decoding would take far more than the image's size says.
    """
    pixels = image.width * image.height
    if tile_pixels(image) > 4 * max(pixels, _MIN_TILE_PIXELS):
        raise MediaDecodeError(f"The TIFF image has {image.width}x{image.height} pixels, but its tiles are far larger.")
    places = (tile.extents for tile in image.tile if tile.extents is not None)
    covered = sum((right - left) * (bottom - top) for left, top, right, bottom in places)
    if covered > 4 * pixels:  # planes of their own included
        raise MediaDecodeError("The TIFF image has more strips or tiles than cover it.")


def tile_pixels(image: TiffImageFile) -> int:
    """Returns the pixels of one tile of a TIFF; its decoder allocates a whole tile, however small the image is."""
    width, height = (image.tag_v2.get(tag, 0) for tag in (ExifTags.Base.TileWidth, ExifTags.Base.TileLength))
    return width * height if isinstance(width, int) and isinstance(height, int) else 0
