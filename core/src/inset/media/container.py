"""Opens containers of video and sound with PyAV: known formats only, and nothing but the bytes at hand."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from io import BytesIO
from typing import TYPE_CHECKING, Final

import av

from inset.errors import MediaDecodeError

if TYPE_CHECKING:
    from av.container import InputContainer

__all__ = ["CONTAINER_FORMATS", "find_container_format", "open_container"]

# FFmpeg would also guess playlists and other formats that open further files and addresses: the content must name one of these.
_SIGNATURES: Final[tuple[tuple[str, re.Pattern[bytes]], ...]] = (
    ("mp4", re.compile(rb"....(?:ftyp|moov|mdat|free|skip|wide|pnot)", re.DOTALL)),
    ("matroska", re.compile(rb"\x1a\x45\xdf\xa3")),
    ("avi", re.compile(rb"RIFF....AVI ", re.DOTALL)),
    ("mpegts", re.compile(rb"(?:\x47.{187}){2}\x47|(?:.{4}\x47.{187}){2}", re.DOTALL)),
    ("mpeg", re.compile(rb"\0\0\x01\xba")),
    ("flv", re.compile(rb"FLV\x01")),
    ("ogg", re.compile(rb"OggS")),
    ("asf", re.compile(rb"\x30\x26\xb2\x75\x8e\x66\xcf\x11")),
    ("wav", re.compile(rb"(?:RIFF|RF64)....WAVE", re.DOTALL)),
    ("flac", re.compile(rb"fLaC")),
    ("aiff", re.compile(rb"FORM....AIF[FC]", re.DOTALL)),
    ("caf", re.compile(rb"caff\0\x01")),
    ("amr", re.compile(rb"#!AMR")),
    ("au", re.compile(rb"\.snd")),
    ("aac", re.compile(rb"\xff[\xf0\xf1\xf8\xf9]")),
    ("mp3", re.compile(rb"ID3|\xff[\xe2\xe3\xf2-\xf5\xfa-\xfd]")),
)
CONTAINER_FORMATS: Final = tuple(name for name, _ in _SIGNATURES)
"""FFmpeg's names of the formats that are read."""

_SNIFFED_BYTES: Final = 1024


def find_container_format(data: bytes) -> str | None:
    """Returns which of `CONTAINER_FORMATS` the content is, or None."""
    start = data[:_SNIFFED_BYTES]
    return next((name for name, signature in _SIGNATURES if signature.match(start)), None)


@contextmanager
def open_container(data: bytes, modality: str, *, max_pixels: int) -> Iterator[InputContainer]:
    """Opens encoded video or sound for reading, and closes it at the end.

    Args:
        data: The encoded bytes.
        modality: ``video`` or ``audio``, for messages.
        max_pixels: Most pixels of a picture that FFmpeg may decode while it looks for what the container does not say.

    Raises:
        MediaDecodeError: The format is not among `CONTAINER_FORMATS`, or its beginning is damaged or cut off.
    """
    name = find_container_format(data)
    if name is None:
        raise MediaDecodeError(f"The bytes are not {modality} in a format that is read.", code=f"unsupported_{modality}_format")
    try:
        container = av.open(
            BytesIO(data),
            mode="r",
            format=name,
            options={"max_pixels": str(max_pixels)},
            metadata_errors="ignore",
            io_open=_refuse_to_open,
        )
    except (av.FFmpegError, ValueError, OSError) as error:
        raise MediaDecodeError(f"The {name} container is damaged or cut off.") from error
    with container:
        yield container


def _refuse_to_open(url: str, flags: int, options: object) -> BytesIO:
    raise PermissionError("A container may not refer to other files.")
