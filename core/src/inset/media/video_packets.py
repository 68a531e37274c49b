"""What one packet of a video makes its decoder do: a deadline is looked at between packets, so each of them has a bound."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from inset.errors import TooLargeError
from inset.media.av1_units import MAX_AV1_FRAMES, has_too_many_frames

if TYPE_CHECKING:
    from av.packet import Packet

__all__ = ["check_packet"]

_MAX_SCANS: Final = 64


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
    if codec == "av1" and has_too_many_frames(bytes(packet)):
        raise TooLargeError(f"The video has a packet of more than {MAX_AV1_FRAMES} frames.")
