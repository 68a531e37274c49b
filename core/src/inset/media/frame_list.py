"""A video that comes as a list of images: how the list is framed as one payload.

Eight bytes of magic, then each frame as its length (8 bytes, big-endian) and its bytes. A connector packs what
``data:video/jpeg;base64,<frame>,<frame>`` carries; `VideoIO` unpacks it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from inset.errors import MediaDecodeError, TooLargeError

__all__ = ["FRAME_LIST_MAGIC", "MOST_FRAMES", "frame_prefix", "is_frame_list", "pack_frames", "unpack_frames"]

FRAME_LIST_MAGIC: Final = b"\x89FRAMES\n"
"""What a payload begins with."""

_LENGTH_BYTES: Final = 8
MOST_FRAMES: Final = 65_536
"""Most frames of a list, and of any video that are looked at."""


def pack_frames(frames: Sequence[bytes]) -> bytes:
    """Returns encoded images, in the order in which they are shown, as the payload of one video."""
    return b"".join([FRAME_LIST_MAGIC, *(part for frame in frames for part in (frame_prefix(frame), frame))])


def frame_prefix(frame: bytes) -> bytes:
    """Returns what stands before an encoded image in a payload."""
    return len(frame).to_bytes(_LENGTH_BYTES, "big")


def is_frame_list(data: bytes) -> bool:
    """Whether a payload was packed by `pack_frames`."""
    return data.startswith(FRAME_LIST_MAGIC)


def unpack_frames(data: bytes) -> list[bytes]:
    """Returns the encoded images of a payload; bytes behind the last whole frame that are all zero are skipped.

    Raises:
        MediaDecodeError: A frame is empty or cut short, or there is none.
        TooLargeError: There are more frames than any list that is served has.
    """
    import numpy as np  # here, because the connector that packs a list needs none of it

    frames: list[bytes] = []
    position = len(FRAME_LIST_MAGIC)
    while position < len(data):
        start = position + _LENGTH_BYTES
        length = int.from_bytes(data[position:start], "big")
        if length == 0:
            if np.frombuffer(data, dtype=np.uint8, offset=position).any():
                raise MediaDecodeError(f"Frame {len(frames)} of the frame list is empty.")
            break
        if len(frames) == MOST_FRAMES:
            raise TooLargeError(f"The frame list has more than {MOST_FRAMES:,} frames.")
        if start + length > len(data):
            raise MediaDecodeError(f"Frame {len(frames)} of the frame list is cut short.")
        frames.append(data[start : start + length])
        position = start + length
    if not frames:
        raise MediaDecodeError("The frame list has no frames.")
    return frames
