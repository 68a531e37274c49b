"""Decodes the frames of a video that a sampler chooses, and no more than that needs."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from itertools import pairwise
from typing import TYPE_CHECKING, ClassVar, Final

import numpy as np

from inset.config import MediaConfig
from inset.errors import MediaDecodeError, PluginContractError, TooLargeError
from inset.identity import JSON, DecodeSpec
from inset.media.container import find_container_format, open_container
from inset.media.decoded import VideoFrames
from inset.media.frame_list import MOST_FRAMES, is_frame_list, unpack_frames
from inset.media.header import MediaHeader
from inset.media.image import ImageIO
from inset.media.io import MediaIO
from inset.media.options import MediaOptions
from inset.media.sampling import DEFAULT_MAX_FRAMES, DEFAULT_NUM_FRAMES, FpsSampler, UniformSampler, VideoFacts, VideoSampler
from inset.media.video_codec import fill_frames, pick_video_track
from inset.media.video_index import VideoIndex, VideoPlan, count_packets
from inset.media.video_rotation import find_rotation

if TYPE_CHECKING:
    from av.video.stream import VideoStream
    from numpy.typing import NDArray

__all__ = ["VideoHeader", "VideoIO"]

_FRAME_LIST: Final = "frames"
_FRAME_LIST_FPS: Final = 1.0
_ALL_FRAMES: Final = -1
_RATE_TOLERANCE: Final = 0.02
_CODEC_BYTES_PER_PIXEL: Final = 16  # eight frames that others refer to, and one on its way to RGB
_BORDER: Final = 128  # codecs work on whole blocks, and FFmpeg counts those
_MOST_PIXELS_AFTER_A_CHANGE: Final = 2**22


@dataclass(frozen=True, slots=True, kw_only=True)
class VideoHeader(MediaHeader):
    """A video's header with the plan for decoding the frames that were sampled."""

    plan: VideoPlan


class VideoIO(MediaIO[VideoFrames]):
    """Decodes sampled frames to `VideoFrames`: upright RGB, exactly what decoding everything would give.

    Options: `num_frames` (32 by default, -1 for all) spreads that many frames evenly; `fps` takes frames at a steady rate instead, at most
    `max_frames` (or `num_frames`; 768 by default). None of them is known where a sampler is given, because then that decides.

    A list of images (see `frame_list`) is a video too: all of its frames are taken, one second apart.
    """

    modality: ClassVar[str] = "video"

    def __init__(self, options: Mapping[str, JSON], config: MediaConfig, *, sampler: VideoSampler | None = None) -> None:
        """Makes a decoder.

        Args:
            options: Media IO options of one request.
            config: Caps.
            sampler: A model family's own choice of frames.

        Raises:
            InvalidRequestError: An option is unknown or has a wrong value.
        """
        super().__init__(config)
        reader = MediaOptions(self.modality, options)
        self._sampler = sampler or _read_sampler(reader)
        reader.finish()

    def get_decode_spec(self) -> DecodeSpec:
        """Returns the sampler's name and settings."""
        return DecodeSpec({"sampler": self._sampler.name, "sampler_settings": dict(self._sampler.get_settings())})

    def get_header_settings(self, header: MediaHeader) -> Mapping[str, JSON]:
        """Returns the rotation that decoding applies."""
        return {"rotation": header.rotation}

    def probe(self, data: bytes) -> MediaHeader:
        """Returns what a demux pass counted and which frames the sampler chose; decodes nothing.

        Raises:
            MediaDecodeError: There is no video track or no frame, or reading took too long.
            TooLargeError: A frame has too many pixels, or the file too many packets.
        """
        if is_frame_list(data):
            return self._probe_frame_list(data)
        deadline = time.monotonic() + self._config.max_video_decode_seconds
        with open_container(data, self.modality, max_pixels=self._config.max_image_pixels + _BORDER * 2**17) as container:
            stream = pick_video_track(container)
            index = count_packets(container, stream, deadline_seconds=deadline)
            return self._make_header(data, stream, index)

    def load_bytes(self, data: bytes, header: MediaHeader | None = None) -> VideoFrames:
        """Decodes the sampled frames; frames that cannot be decoded are left out.

        Raises:
            MediaDecodeError: Not one frame could be decoded, or decoding took too long.
            TooLargeError: The frames become far larger on the way.
        """
        header = header or self.probe(data)
        return self._decode_frame_list(data, header) if header.format == _FRAME_LIST else self._decode(data, header)

    def _make_header(self, data: bytes, stream: VideoStream, index: VideoIndex) -> VideoHeader:
        num_frames = len(index.frames)
        if not num_frames:
            raise MediaDecodeError("The video has no frames.")
        width, height = stream.codec_context.width, stream.codec_context.height
        self._check_frame_size(width, height)
        container_format = find_container_format(data) or ""
        rotation = find_rotation(data, container_format, stream.id)
        if rotation % 180:
            width, height = height, width
        timestamps, fps = _find_times(stream, index)
        facts = VideoFacts(
            num_frames=num_frames, fps=fps, duration_seconds=num_frames / fps, width=width, height=height, timestamps_seconds=timestamps
        )
        indices = self._sample(facts)
        return VideoHeader(
            modality=self.modality,
            format=container_format,
            width=width,
            height=height,
            mode=stream.codec_context.pix_fmt,
            rotation=rotation,
            num_frames=len(indices),
            total_num_frames=num_frames,
            fps=fps,
            frame_indices=indices,
            timestamps_seconds=tuple(float(timestamps[position]) for position in indices),
            duration_seconds=facts.duration_seconds,
            decoded_bytes=len(indices) * width * height * 3,
            peak_bytes=(len(indices) * 3 + _CODEC_BYTES_PER_PIXEL) * width * height,
            plan=index.plan(indices),
        )

    def _check_frame_size(self, width: int, height: int) -> None:
        if width < 1 or height < 1:
            raise MediaDecodeError("The video does not say how large its frames are, or they are too large to be looked at.")
        if width * height > self._config.max_image_pixels:
            raise TooLargeError(f"The video has frames of {width}x{height} pixels; {self._config.max_image_pixels:,} in all are allowed.")

    def _sample(self, facts: VideoFacts) -> tuple[int, ...]:
        indices = tuple(int(index) for index in self._sampler.sample(facts))
        if not indices or indices[0] < 0 or indices[-1] >= facts.num_frames or any(a > b for a, b in pairwise(indices)):
            raise PluginContractError(
                f"The video sampler {self._sampler.name!r} chose frames that are not ascending positions below {facts.num_frames}."
            )
        return indices

    def _decode(self, data: bytes, header: MediaHeader) -> VideoFrames:
        if not isinstance(header, VideoHeader):
            raise PluginContractError("VideoIO decodes with the header that its own probe gave.")
        deadline = time.monotonic() + self._config.max_video_decode_seconds
        decode = partial(
            fill_frames, data, rotation=header.rotation, max_pixels=self._max_decoded_pixels(header), deadline_seconds=deadline
        )
        frames = np.empty((len(header.frame_indices), header.height or 0, header.width or 0, 3), dtype=np.uint8)
        filled = decode(header.plan, frames)
        if not filled.all() and not header.plan.is_thorough:
            # Damage, or a stream whose keyframes are none: what decoding everything gives is the answer.
            filled = decode(header.plan.made_thorough(), frames)
        if not filled.any():
            raise MediaDecodeError("None of the frames of the video could be decoded.")
        kept = np.flatnonzero(filled)
        return VideoFrames(
            frames=_keep_frames(frames, kept.tolist()),
            total_num_frames=header.total_num_frames or 0,
            fps=header.fps or 0.0,
            duration_seconds=header.duration_seconds or 0.0,
            frame_indices=tuple(header.frame_indices[slot] for slot in kept),
            timestamps_seconds=tuple(header.timestamps_seconds[slot] for slot in kept),
        )

    def _max_decoded_pixels(self, header: MediaHeader) -> int:
        """A video may change its frames' size, but what its header never said is not reserved, so it stays moderate."""
        promised = ((header.width or 0) + _BORDER) * ((header.height or 0) + _BORDER)
        return max(promised, min(self._config.max_image_pixels, _MOST_PIXELS_AFTER_A_CHANGE))

    def _probe_frame_list(self, data: bytes) -> MediaHeader:
        frames = unpack_frames(data)
        with _naming_frame(0):
            first = ImageIO({}, self._config).probe(frames[0])
        return MediaHeader(
            modality=self.modality,
            format=_FRAME_LIST,
            width=first.width,
            height=first.height,
            mode=first.mode,
            num_frames=len(frames),
            total_num_frames=len(frames),
            fps=_FRAME_LIST_FPS,
            frame_indices=tuple(range(len(frames))),
            timestamps_seconds=tuple(index / _FRAME_LIST_FPS for index in range(len(frames))),
            duration_seconds=len(frames) / _FRAME_LIST_FPS,
            decoded_bytes=len(frames) * first.decoded_bytes,
            peak_bytes=len(frames) * first.decoded_bytes + first.peak_bytes,
        )

    def _decode_frame_list(self, data: bytes, header: MediaHeader) -> VideoFrames:
        image_io = ImageIO({}, self._config)
        deadline = time.monotonic() + self._config.max_video_decode_seconds
        frames = np.empty((header.num_frames or 0, header.height or 0, header.width or 0, 3), dtype=np.uint8)
        for number, encoded in enumerate(unpack_frames(data)):
            with _naming_frame(number):
                if time.monotonic() > deadline:
                    raise MediaDecodeError("Decoding the video took too long before it.", code="media_decode_timeout")
                frame_header = image_io.probe(encoded)
                if (frame_header.width, frame_header.height) != (header.width, header.height):
                    raise MediaDecodeError("It has another size than the first one.")
                frames[number] = image_io.load_bytes(encoded, frame_header)
        return VideoFrames(
            frames=frames,
            total_num_frames=len(frames),
            fps=_FRAME_LIST_FPS,
            duration_seconds=len(frames) / _FRAME_LIST_FPS,
            frame_indices=header.frame_indices,
            timestamps_seconds=header.timestamps_seconds,
        )


def _keep_frames(frames: NDArray[np.uint8], kept: Sequence[int]) -> NDArray[np.uint8]:
    """Moves some frames, ascending, to the front, where a copy would need as much memory again."""
    for target, source in enumerate(kept):
        if target != source:
            frames[target] = frames[source]
    return frames[: len(kept)]


@contextmanager
def _naming_frame(number: int) -> Iterator[None]:
    try:
        yield
    except (MediaDecodeError, TooLargeError) as error:
        raise type(error)(f"Frame {number} of the frame list: {error.message}", code=error.code) from error


def _read_sampler(reader: MediaOptions) -> VideoSampler:
    num_frames = reader.integer("num_frames", None, minimum=_ALL_FRAMES, maximum=MOST_FRAMES)
    fps = reader.number("fps", None, above=0)
    max_frames = reader.integer("max_frames", None, minimum=1, maximum=MOST_FRAMES)
    if num_frames == 0:
        raise reader.wrong("num_frames", 0, "above 0, or -1 for all")
    if fps is None:
        if max_frames is not None:
            raise reader.wrong("max_frames", max_frames, "given together with fps")
        return UniformSampler(None if num_frames == _ALL_FRAMES else num_frames or DEFAULT_NUM_FRAMES)
    if max_frames is not None and num_frames is not None:
        raise reader.wrong("num_frames", num_frames, "left out where max_frames is given")
    limit = max_frames if num_frames in (None, _ALL_FRAMES) else num_frames
    return FpsSampler(fps, limit or DEFAULT_MAX_FRAMES)


def _find_times(stream: VideoStream, index: VideoIndex) -> tuple[Sequence[float], float]:
    """Returns when each frame is shown, and the average rate: what the file claims where the count bears it out, else the count."""
    num_frames = len(index.frames)
    claimed = float(stream.average_rate or stream.guessed_rate or 0)
    if not index.has_timestamps or stream.time_base is None:
        fps = claimed or 1.0
        return [position / fps for position in range(num_frames)], fps
    stamps = index.timestamps[index.frames]
    times = (stamps - stamps[0]) * float(stream.time_base)
    if num_frames == 1:
        return [0.0], claimed or 1.0
    counted = (num_frames - 1) / float(times[-1])
    fps = claimed if abs(claimed - counted) <= _RATE_TOLERANCE * counted else counted
    return times.tolist(), fps
