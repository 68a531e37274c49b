"""Which image format the bytes are, and what their header says; nothing is decoded here."""

from __future__ import annotations

import re
import warnings
from collections.abc import Callable
from io import BytesIO
from typing import Final

from PIL import (
    AvifImagePlugin,
    BmpImagePlugin,
    GifImagePlugin,
    Image,
    Jpeg2KImagePlugin,
    JpegImagePlugin,
    PngImagePlugin,
    TiffImagePlugin,
    WebPImagePlugin,
)

from inset.errors import MediaDecodeError
from inset.media.avif_boxes import check_avif_boxes
from inset.media.jpeg2000_markers import check_jpeg2000_markers
from inset.media.jpeg_markers import check_jpeg_markers
from inset.media.png_chunks import check_png_chunks
from inset.media.tiff_tags import check_tiff_tags

__all__ = ["IMAGE_FORMATS", "open_image"]

_Opener = Callable[[BytesIO], Image.Image]

# Opened directly instead of through Image.open: that would try every registered format, and warn about sizes that are our cap's to judge.
# A BigTIFF that begins with MM is not among them: Pillow reads its header as that of a TIFF.
_OPENERS: Final[dict[str, tuple[re.Pattern[bytes], _Opener]]] = {
    "JPEG": (re.compile(rb"\xff\xd8\xff"), JpegImagePlugin.jpeg_factory),
    "PNG": (re.compile(rb"\x89PNG\r\n\x1a\n"), PngImagePlugin.PngImageFile),
    "WebP": (re.compile(rb"RIFF....WEBPVP8[ LX]", re.DOTALL), WebPImagePlugin.WebPImageFile),
    "GIF": (re.compile(rb"GIF8[79]a"), GifImagePlugin.GifImageFile),
    "BMP": (re.compile(rb"BM"), BmpImagePlugin.BmpImageFile),
    "TIFF": (re.compile(rb"II\*\0|MM\0\*|II\+\0"), TiffImagePlugin.TiffImageFile),
    "AVIF": (re.compile(rb"....ftyp(?:avi[fs]|(?:mif1|msf1)....(?:....)*?avi[fs])", re.DOTALL), AvifImagePlugin.AvifImageFile),
    "JPEG 2000": (re.compile(rb"\xff\x4f\xff\x51|\0\0\0\x0cjP  \r\n\x87\n"), Jpeg2KImagePlugin.Jpeg2KImageFile),
}

# What a format allows without bound and its reader pays for, held against a bound before it is opened.
_CHECKS: Final[dict[str, Callable[[bytes], None]]] = {
    "JPEG": check_jpeg_markers,
    "PNG": check_png_chunks,
    "TIFF": check_tiff_tags,
    "AVIF": check_avif_boxes,
    "JPEG 2000": check_jpeg2000_markers,
}

IMAGE_FORMATS: Final = tuple(_OPENERS)
"""The formats that are read."""

_REFUSED: Final[tuple[tuple[str, re.Pattern[bytes]], ...]] = (
    ("an HTML page", re.compile(rb"(?:\xef\xbb\xbf)?\s*(?:<!--.*?-->\s*)?<(?:!doctype html|html|head|body)\b", re.DOTALL | re.IGNORECASE)),
    ("an SVG drawing", re.compile(rb"(?:\xef\xbb\xbf)?\s*<(?:svg\b|[?!].*<svg\b)", re.DOTALL)),
    ("a PDF document", re.compile(rb".*?%PDF-", re.DOTALL)),
    ("an EPS or PostScript document", re.compile(rb"%!PS|\xc5\xd0\xd3\xc6")),
    ("a WMF or EMF drawing", re.compile(rb"\xd7\xcd\xc6\x9a|\x01\0\x09\0\0\x03|\x01\0\0\0.{36} EMF", re.DOTALL)),
    ("a HEIC image", re.compile(rb"....ftyp(?:hei[cxms]|hev[cxms]|mif1|msf1)", re.DOTALL)),
    ("a JPEG XL image", re.compile(rb"\xff\x0a|\0\0\0\x0cJXL ")),
    ("an icon or cursor", re.compile(rb"\0\0[\x01\x02]\0")),
    ("a Photoshop document", re.compile(rb"8BPS")),
    ("a video", re.compile(rb"....ftyp|\x1a\x45\xdf\xa3|RIFF....AVI ", re.DOTALL)),
)
_SNIFFED_BYTES: Final = 1024

# Pillow warns of each tag that it leaves out, of a TIFF or of EXIF, and keeps each text: files could fill the log, and the memory.
warnings.filterwarnings("ignore", category=UserWarning, module=r"PIL\.TiffImagePlugin")


def open_image(data: bytes) -> Image.Image:
    """Returns an image whose header has been read and whose pixels have not.

    The content decides the format; the first frame stands for an animation.

    Raises:
        MediaDecodeError: The format is not among `IMAGE_FORMATS`, or the header is damaged.
        TooLargeError: Its parts are so many that reading or decoding them would take long.
    """
    start = data[:_SNIFFED_BYTES]
    for name, (signature, opener) in _OPENERS.items():
        if signature.match(start):
            if (check := _CHECKS.get(name)) is not None:
                check(data)
            try:
                return opener(BytesIO(data))
            except Exception as error:  # Pillow's header parsers raise almost anything on damaged files
                raise MediaDecodeError(f"The {name} image has a damaged header.") from error
    formats = ", ".join(IMAGE_FORMATS)
    for name, signature in _REFUSED:
        if signature.match(start):
            message = f"This is {name}, which is not read as an image. Send one of {formats}."
            raise MediaDecodeError(message, code="unsupported_image_format")
    message = f"The bytes are not an image in a format that is read. Send one of {formats}."
    raise MediaDecodeError(message, code="unsupported_image_format")
