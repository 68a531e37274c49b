"""What a video holds, counted packet by packet without decoding, and which packets have to be decoded for some of its frames."""

from __future__ import annotations

import time
from array import array
from bisect import bisect_right
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import av
import numpy as np

from inset.errors import MediaDecodeError, TooLargeError

if TYPE_CHECKING:
    from av.container import InputContainer
    from av.packet import Packet
    from av.video.stream import VideoStream
    from numpy.typing import NDArray

__all__ = ["VideoIndex", "VideoPlan", "count_packets"]

_MAX_PACKETS: Final = 2_000_000
_MISSING: Final = -(2**63)
_MIN_SKIPPED_PACKETS: Final = 4


@dataclass(frozen=True, slots=True)
class VideoPlan:
    """Which packets to decode for which frames.

    Attributes:
        segments: Runs of packets (start, stop) in the order of the file, ascending and disjoint; each begins where decoding can begin.
        wanted: What names each frame to keep: its presentation timestamp in units of the stream, or its position among all decoded frames
            where the file gives no usable timestamps.
        has_timestamps: Which of the two `wanted` holds.
        num_packets: Packets in the whole video.
        is_thorough: Every packet of the segments is decoded, even if nothing that is wanted needs it.
    """

    segments: tuple[tuple[int, int], ...]
    wanted: tuple[int, ...]
    has_timestamps: bool
    num_packets: int
    is_thorough: bool = False

    def made_thorough(self) -> VideoPlan:
        """Returns the plan that decodes everything."""
        return VideoPlan(((0, self.num_packets),), self.wanted, self.has_timestamps, self.num_packets, is_thorough=True)


@dataclass(frozen=True, slots=True)
class VideoIndex:
    """The packets of one video track in the order of the file, and its frames in the order in which they are shown.

    Attributes:
        timestamps: ``(num_packets,)`` int64: presentation timestamps in units of the stream.
        keyframes: Packets at which decoding can begin, ascending.
        frames: ``(num_frames,)`` int64: the packet of each frame, in the order in which frames are shown.
        has_timestamps: The shown packets have timestamps, each its own.
    """

    timestamps: NDArray[np.int64]
    keyframes: NDArray[np.int64]
    frames: NDArray[np.int64]
    has_timestamps: bool

    def plan(self, frame_indices: Sequence[int]) -> VideoPlan:
        """Returns the fewest packets that give these frames exactly: each from the last keyframe that comes before it."""
        num_packets = len(self.timestamps)
        if not self.has_timestamps:
            return VideoPlan(((0, num_packets),), tuple(frame_indices), False, num_packets, is_thorough=True)
        packets = self.frames[np.asarray(frame_indices, dtype=np.int64)]
        segments: list[tuple[int, int]] = []
        for start, packet in self._iter_starts(np.unique(packets)):
            stop = packet + 1
            # A short gap is decoded through: emptying and restarting the decoder costs about as much.
            if segments and start < segments[-1][1] + _MIN_SKIPPED_PACKETS:
                segments[-1] = (segments[-1][0], stop)
            else:
                segments.append((start, stop))
        wanted = tuple(int(timestamp) for timestamp in self.timestamps[packets])
        return VideoPlan(tuple(segments), wanted, True, num_packets)

    def _iter_starts(self, packets: NDArray[np.int64]) -> Iterator[tuple[int, int]]:
        """Yields each of some packets, ascending, behind the packet at which its decoding begins.

        That is the last keyframe before it that is not shown later: a frame shown before a keyframe may still need the one before that.
        A keyframe that is shown no later than those before it makes them useless for all packets behind it, so only the others are kept.
        """
        keyframes, shown = self.keyframes.tolist(), self.timestamps[self.keyframes].tolist()
        useful: list[int] = []
        shown_when: list[int] = []
        number = 0
        for packet, timestamp in zip(packets.tolist(), self.timestamps[packets].tolist(), strict=True):
            while number < len(keyframes) and keyframes[number] <= packet:
                while shown_when and shown_when[-1] >= shown[number]:
                    useful.pop()
                    shown_when.pop()
                useful.append(keyframes[number])
                shown_when.append(shown[number])
                number += 1
            last = bisect_right(shown_when, timestamp)
            yield (useful[last - 1] if last else 0), packet


def count_packets(container: InputContainer, stream: VideoStream, *, deadline_seconds: float) -> VideoIndex:
    """Reads all packets of a track, as far as the file goes, and decodes none.

    Args:
        container: An open container; read to its end.
        stream: The track.
        deadline_seconds: `time.monotonic()` at which it gives up.

    Raises:
        TooLargeError: There are more packets than any video that is served has.
        MediaDecodeError: It took too long.
    """
    timestamps, keyframes, shown = array("q"), array("q"), array("q")
    is_vp8 = stream.codec_context.name == "vp8"
    try:
        for packet in container.demux(stream):
            if not packet.size:
                continue
            number = len(timestamps)
            if number >= _MAX_PACKETS:
                raise TooLargeError(f"The video has more than {_MAX_PACKETS:,} packets.")
            if number % 1024 == 0 and time.monotonic() > deadline_seconds:
                raise MediaDecodeError("Counting the frames of the video took too long.", code="media_decode_timeout")
            timestamps.append(_MISSING if packet.pts is None else packet.pts)
            if packet.is_keyframe:
                keyframes.append(number)
            if not packet.is_discard and not (is_vp8 and _is_hidden(packet)):
                shown.append(number)
    except (av.FFmpegError, OSError):
        pass  # a file that is cut off or unreadable from here on: what was counted is what there is
    return _make_index(timestamps, keyframes, shown, is_numbered=container.format.name == "avi" and bool(stream.codec_context.has_b_frames))


def _is_hidden(packet: Packet[Any]) -> bool:
    """A VP8 packet may be a reference that is never shown; the fifth bit of its first byte tells."""
    return not memoryview(packet)[0] & 0x10


def _make_index(timestamps: array[int], keyframes: array[int], shown: array[int], *, is_numbered: bool) -> VideoIndex:
    """AVI numbers packets in the order of the file, which is not that of the frames where some are coded ahead of their time."""
    stamps, frames = np.array(timestamps, dtype=np.int64), np.array(shown, dtype=np.int64)
    shown_stamps = stamps[frames]
    has_timestamps = not is_numbered and not (shown_stamps == _MISSING).any() and len(np.unique(shown_stamps)) == len(shown_stamps)
    if has_timestamps:
        frames = frames[np.argsort(shown_stamps, kind="stable")]
    return VideoIndex(stamps, np.array(keyframes, dtype=np.int64), frames, has_timestamps)
