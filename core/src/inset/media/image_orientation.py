"""Where an image file keeps its orientation and its ImageID: found in the header, without decoding pixels."""

from __future__ import annotations

import re
import zlib
from typing import Final

from PIL import ExifTags, Image

from inset.media.png_chunks import iter_png_chunks

__all__ = ["find_image_id", "find_orientation"]

_XMP_ORIENTATION: Final = re.compile(rb"tiff:Orientation(?:\s*=\s*[\"']|>)\s*([1-8])")
_XMP_KEYWORD: Final = b"XML:com.adobe.xmp"
_MAX_METADATA_BYTES: Final = 1024**2


def find_orientation(image: Image.Image, data: bytes) -> int:
    """Returns the EXIF orientation that decoding has to apply, 1 to 8; 1 where there is none or it makes no sense.

    EXIF goes before XMP. A TIFF is turned by its own decoder already.

    Source: Pillow `Image.getexif` and `ImageOps.exif_transpose`, without the decode that the former does for PNG.
    """
    if image.format == "TIFF":
        return 1
    exif, xmp = _find_metadata(image, data)
    orientation = _exif_value(exif, ExifTags.Base.Orientation) if exif else None
    if orientation is None and xmp and (match := _XMP_ORIENTATION.search(xmp)):
        orientation = int(match[1])
    return orientation if isinstance(orientation, int) and 1 <= orientation <= 8 else 1


def find_image_id(image: Image.Image, data: bytes) -> bytes | None:
    """Returns the ImageID of an image's EXIF block as bytes, or None where there is none."""
    exif, _ = _find_metadata(image, data)
    value = _exif_value(exif, ExifTags.Base.ImageID) if exif else None
    if isinstance(value, str):
        value = value.encode("utf-8", "surrogatepass")
    return value if isinstance(value, bytes) and value.strip(b"\0 ") else None


def _exif_value(block: bytes, tag: int) -> object:
    exif = Image.Exif()
    try:
        exif.load(block)
        return exif.get(tag)
    except Exception:  # whatever a broken EXIF block raises: it says nothing then
        return None


def _find_metadata(image: Image.Image, data: bytes) -> tuple[bytes, bytes]:
    if image.format == "PNG":
        return _find_png_metadata(data)
    exif, xmp = image.info.get("exif", b""), image.info.get("xmp", b"")
    return (exif if isinstance(exif, bytes) else b""), (xmp if isinstance(xmp, bytes) else b"")


def _find_png_metadata(data: bytes) -> tuple[bytes, bytes]:
    """Walks the chunks, because they may also stand behind the pixels."""
    exif = xmp = old_exif = b""
    for kind, body in iter_png_chunks(data):
        if len(body) > _MAX_METADATA_BYTES:
            continue
        if kind == b"eXIf":
            exif = exif or bytes(body)
        elif kind == b"iTXt" and bytes(body[: len(_XMP_KEYWORD) + 1]) == _XMP_KEYWORD + b"\0":
            xmp = xmp or _read_international_text(bytes(body[len(_XMP_KEYWORD) + 1 :]))
        elif kind in (b"tEXt", b"zTXt") and bytes(body[:22]) == b"Raw profile type exif\0":
            old_exif = old_exif or _read_text_profile(bytes(body[22:]), is_compressed=kind == b"zTXt")
    return exif or old_exif, xmp


def _read_international_text(body: bytes) -> bytes:
    parts = body[2:].split(b"\0", 2)  # behind two bytes of flags: language, translated keyword, text
    if len(parts) < 3:
        return b""
    return _inflate(parts[2]) if body[0] == 1 else parts[2]


def _read_text_profile(body: bytes, *, is_compressed: bool) -> bytes:
    """Returns the EXIF block that ImageMagick writes as hexadecimal text under a name and a length, a line each."""
    lines = (_inflate(body[1:]) if is_compressed else body).split(b"\n")
    try:
        return bytes.fromhex(b"".join(lines[3:]).decode("ascii"))
    except ValueError:
        return b""


def _inflate(compressed: bytes) -> bytes:
    try:
        return zlib.decompressobj().decompress(compressed, _MAX_METADATA_BYTES)
    except zlib.error:
        return b""
