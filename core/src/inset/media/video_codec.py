"""Runs the codec over the packets that a plan names, and converts the frames that it wants, and no others."""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, cast

import av
import numpy as np
from av.stream import Disposition

from inset.errors import MediaDecodeError, TooLargeError
from inset.media.container import open_container
from inset.media.video_packets import check_packet

if TYPE_CHECKING:
    from av.container import InputContainer
    from av.packet import Packet
    from av.video.frame import VideoFrame
    from av.video.stream import VideoStream
    from numpy.typing import NDArray

    from inset.media.video_index import VideoPlan

__all__ = ["fill_frames", "pick_video_track"]


def pick_video_track(container: InputContainer) -> VideoStream:
    """Returns the first video track that is not a cover picture.

    Raises:
        MediaDecodeError: There is none, or its codec is not known, as in a file that is cut inside its index.
    """
    for stream in container.streams.video:
        if stream.disposition & Disposition.attached_pic:
            continue
        if stream.codec_context is None:
            raise MediaDecodeError("The video track's codec is not known: the file is damaged or cut off.", code="unsupported_video_format")
        return stream
    raise MediaDecodeError("The file has no video track.")


def fill_frames(
    data: bytes, plan: VideoPlan, frames: NDArray[np.uint8], *, rotation: int, max_pixels: int, deadline_seconds: float
) -> NDArray[np.bool_]:
    """Decodes the frames that a plan wants into an array, and returns which of them there were.

    A packet that cannot be decoded is passed over. A frame of another size than the video's is scaled to it.

    Args:
        data: The encoded video.
        plan: What to decode.
        frames: ``(num_frames, height, width, 3)`` uint8, upright; written where frames are found.
        rotation: Clockwise turn that is applied, in degrees.
        max_pixels: Most pixels of a frame that is decoded, whatever the header said.
        deadline_seconds: `time.monotonic()` at which it gives up.

    Raises:
        MediaDecodeError: It took too long.
        TooLargeError: A frame on the way has more pixels, or a packet far more work than a picture is.
    """
    slots: dict[int, list[int]] = defaultdict(list)
    for slot, wanted in enumerate(plan.wanted):
        slots[wanted].append(slot)
    height, width = frames.shape[1:3] if rotation % 180 == 0 else frames.shape[2:0:-1]
    filled = np.zeros(len(frames), dtype=np.bool_)
    for position, frame in enumerate(_decode_segments(data, plan, max_pixels, deadline_seconds)):
        name = frame.pts if plan.has_timestamps else position
        found = () if name is None else slots.pop(name, ())
        if not found:
            continue
        pixels = np.rot90(_to_rgb(frame, width, height), -rotation // 90)
        for slot in found:
            frames[slot] = pixels
            filled[slot] = True
        if not slots:
            break
    return filled


def _to_rgb(frame: VideoFrame, width: int, height: int) -> NDArray[np.uint8]:
    if (frame.width, frame.height) != (width, height):
        frame = frame.reformat(width=width, height=height, format="rgb24")
    return cast("NDArray[np.uint8]", frame.to_ndarray(format="rgb24"))


def _decode_segments(data: bytes, plan: VideoPlan, max_pixels: int, deadline_seconds: float) -> Iterator[VideoFrame]:
    """Yields the frames of all segments. Packets between them are read and dropped: that is cheap, and exact in every container."""
    with open_container(data, "video", max_pixels=max_pixels) as container:
        stream = pick_video_track(container)
        stream.codec_context.options = {"max_pixels": str(max_pixels)}
        # In H.264, and there alone for certain, pictures that say so are no other picture's reference.
        wanted = frozenset(plan.wanted) if stream.codec_context.name == "h264" and not plan.is_thorough else None
        coding = stream.codec_context.codec.canonical_name
        segments = iter(plan.segments)
        start, stop = next(segments)
        for number, packet in enumerate(_packets(container, stream)):
            if time.monotonic() > deadline_seconds:
                raise MediaDecodeError("Decoding the video took too long.", code="media_decode_timeout")
            if number >= start:
                check_packet(coding, packet)
                if wanted is not None:
                    stream.codec_context.skip_frame = "DEFAULT" if packet.pts in wanted else "NONREF"
                yield from _decode(stream, packet, max_pixels)
            if number + 1 == stop:
                yield from _decode(stream, None, max_pixels)
                following = next(segments, None)
                if following is None:
                    return
                start, stop = following
                stream.codec_context.flush_buffers()
        yield from _decode(stream, None, max_pixels)


def _packets(container: InputContainer, stream: VideoStream) -> Iterator[Packet[Any]]:
    try:
        for packet in container.demux(stream):
            if packet.size:
                yield packet
    except (av.FFmpegError, OSError):
        return  # cut off or unreadable from here on


def _decode(stream: VideoStream, packet: Packet[Any] | None, max_pixels: int) -> list[VideoFrame]:
    try:
        frames = list(stream.decode(packet))
    except av.FFmpegError as error:
        if _is_over_size(error, stream, max_pixels):
            raise _too_large(max_pixels) from error
        return []
    if any(frame.width * frame.height > max_pixels for frame in frames):
        raise _too_large(max_pixels)
    return frames


def _is_over_size(error: av.FFmpegError, stream: VideoStream, max_pixels: int) -> bool:
    """Whether a frame's size made the decoder refuse it: that forgets the size then, or keeps it, or, for AV1, has an error for it."""
    pixels = stream.codec_context.width * stream.codec_context.height
    return isinstance(error, av.error.OverflowError) or pixels > max_pixels or (isinstance(error, av.ArgumentError) and not pixels)


def _too_large(max_pixels: int) -> TooLargeError:
    return TooLargeError(
        f"The video changes on the way to frames of another size; at most {max_pixels:,} pixels of a frame are decoded then."
    )
