"""What one packet of a video makes its decoder do: a deadline is looked at between packets, so each of them has a bound."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from inset.errors import TooLargeError

if TYPE_CHECKING:
    from av.packet import Packet

__all__ = ["check_packet"]

_MAX_SCANS: Final = 64
_MAX_FRAMES: Final = 64
_MAX_UNITS: Final = 4096
_FRAME_UNITS: Final = frozenset((3, 6))  # a frame's header alone, and a whole frame
_MAX_SIZE_BYTES: Final = 8


def check_packet(codec: str, packet: Packet[Any]) -> None:
    """Refuses a packet with many times the work of a picture.

    A progressive JPEG goes over the picture once for each scan, and AV1 may hold any number of frames that are never shown.

    Args:
        codec: FFmpeg's name of the coding, whichever decoder reads it.
        packet: Not decoded yet.

    Raises:
        TooLargeError: There are more scans or hidden frames than any real video has.
    """
    # Coded data hides the mark of a scan, and what stands in notes may well count too.
    if codec == "mjpeg" and bytes(packet).count(b"\xff\xda") > _MAX_SCANS:
        raise TooLargeError(f"The video has a picture with more than {_MAX_SCANS} scans.")
    if codec == "av1":
        _check_av1_units(bytes(packet))


def _check_av1_units(packet: bytes) -> None:
    """Walks the open bitstream units; one without a size is the last."""
    position = num_frames = num_units = 0
    while position < len(packet):
        head = packet[position]
        num_units += 1
        num_frames += (head >> 3) & 15 in _FRAME_UNITS
        if num_frames > _MAX_FRAMES or num_units > _MAX_UNITS:
            raise TooLargeError(f"The video has a packet of more than {_MAX_FRAMES} frames.")
        if not head & 2:
            return
        position += 2 if head & 4 else 1
        size = 0
        for index, byte in enumerate(packet[position : position + _MAX_SIZE_BYTES]):
            size |= (byte & 0x7F) << (7 * index)
            position += 1
            if byte < 0x80:
                break
        position += size
