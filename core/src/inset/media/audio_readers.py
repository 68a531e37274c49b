"""Two ways to read sound: libsndfile for sound files, PyAV for everything else, containers of video included."""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import dataclass
from io import BytesIO
from typing import TYPE_CHECKING, Final

import av
import numpy as np
import soundfile

from inset.errors import MediaDecodeError
from inset.media.container import find_container_format, open_container

if TYPE_CHECKING:
    from av.audio.stream import AudioStream
    from av.container import InputContainer
    from numpy.typing import NDArray

__all__ = ["SoundFacts", "is_sound_file", "iter_pyav", "iter_soundfile", "probe_pyav", "probe_soundfile"]

# Not MP3: libsndfile cuts one without a length in its header off at an estimate.
_SOUND_FILES: Final = frozenset({"wav", "flac", "ogg", "aiff", "caf", "au"})
_BLOCK_FRAMES: Final = 16 * 1024
_MAX_KNOWN_SAMPLES: Final = 2**40
_SLACK_SECONDS: Final = 1.0
_MAX_PICTURE_PIXELS: Final = 1024**2  # pictures beside the sound are not needed, so what FFmpeg decodes of them is kept small
_MAX_PLANES: Final = 2  # reading the planes of some layouts of three channels and more crashes PyAV 18


@dataclass(frozen=True, slots=True)
class SoundFacts:
    """What a header says about sound.

    Attributes:
        format: Container format.
        mode: Coding of the samples.
        sampling_rate: Samples per second and channel.
        num_channels: Channels.
        num_samples: Samples per channel.
        max_samples: Most samples per channel that decoding may give; more than `num_samples` where that is only what packets announce.
    """

    format: str
    mode: str
    sampling_rate: int
    num_channels: int
    num_samples: int
    max_samples: int


class _SoundBytes(BytesIO):
    """Stays where it is when a damaged file sends libsndfile before the beginning; an exception could only be printed by the C library."""

    def seek(self, offset: int, whence: int = 0, /) -> int:
        try:
            return super().seek(offset, whence)
        except (ValueError, OverflowError):
            return self.tell()


def is_sound_file(data: bytes) -> bool:
    """Whether libsndfile is to be tried first."""
    return find_container_format(data) in _SOUND_FILES


def probe_soundfile(data: bytes) -> SoundFacts | None:
    """Returns what libsndfile makes of the header, or None where it cannot read the file or does not know its length."""
    try:
        with soundfile.SoundFile(_SoundBytes(data)) as sound:
            facts = SoundFacts(sound.format, sound.subtype, sound.samplerate, sound.channels, sound.frames, sound.frames)
    except (soundfile.SoundFileError, RuntimeError, ValueError, TypeError):
        return None
    return facts if 0 < facts.num_samples < _MAX_KNOWN_SAMPLES else None


def iter_soundfile(data: bytes, *, deadline_seconds: float) -> Iterator[NDArray[np.float32]]:
    """Yields blocks ``(num_channels, n)`` float32, as far as the file can be read.

    Raises:
        MediaDecodeError: Decoding took too long.
    """
    try:
        with soundfile.SoundFile(_SoundBytes(data)) as sound:
            while len(block := sound.read(_BLOCK_FRAMES, dtype="float32", always_2d=True)):
                _check_time(deadline_seconds)
                yield block.T
    except (soundfile.SoundFileError, RuntimeError):
        return  # cut off or damaged from here on


def probe_pyav(data: bytes, *, deadline_seconds: float) -> SoundFacts:
    """Returns what PyAV finds in a demux pass; the length is what the packets announce.

    Raises:
        MediaDecodeError: There is no sound, or reading took too long.
    """
    with open_container(data, "audio", max_pixels=_MAX_PICTURE_PIXELS) as container:
        stream = _pick_audio_track(container)
        ticks, seconds_per_tick = 0, float(stream.time_base or 0)
        try:
            for number, packet in enumerate(container.demux(stream)):
                ticks += packet.duration or 0
                if number % 1024 == 0 and time.monotonic() > deadline_seconds:
                    raise MediaDecodeError("Reading the length of the sound took too long.", code="media_decode_timeout")
        except (av.FFmpegError, OSError):
            pass  # cut off or unreadable from here on: what was counted is what there is
        seconds = max(ticks, stream.duration or 0) * seconds_per_tick
        codec = stream.codec_context
        return SoundFacts(
            format=find_container_format(data) or "",
            mode=codec.name,
            sampling_rate=codec.sample_rate or 0,
            num_channels=codec.layout.nb_channels,
            num_samples=int(seconds * (codec.sample_rate or 0)),
            max_samples=int((seconds + _SLACK_SECONDS) * (codec.sample_rate or 0)),
        )


def iter_pyav(data: bytes, *, deadline_seconds: float) -> Iterator[NDArray[np.float32]]:
    """Yields blocks ``(num_channels, n)`` float32, as far as the file can be read; damaged packets are passed over.

    Raises:
        MediaDecodeError: Decoding took too long, or rate or channels change on the way.
    """
    with open_container(data, "audio", max_pixels=_MAX_PICTURE_PIXELS) as container:
        stream = _pick_audio_track(container)
        codec = stream.codec_context
        converter = av.AudioResampler(format="flt", layout=codec.layout, rate=codec.sample_rate)
        for frame in _decode(container, stream, deadline_seconds):
            if frame.sample_rate != codec.sample_rate or frame.layout.nb_channels != codec.layout.nb_channels:
                raise MediaDecodeError("Sampling rate or channels change within the sound.")
            if frame.format.name == "fltp" and codec.layout.nb_channels <= _MAX_PLANES:
                yield frame.to_ndarray()
                continue
            frame.pts = None  # gaps between timestamps are not filled
            for block in converter.resample(frame):
                yield block.to_ndarray().reshape(-1, codec.layout.nb_channels).T


def _check_time(deadline_seconds: float) -> None:
    if time.monotonic() > deadline_seconds:
        raise MediaDecodeError("Decoding the sound took too long.", code="media_decode_timeout")


def _pick_audio_track(container: InputContainer) -> AudioStream:
    if not container.streams.audio:
        raise MediaDecodeError("The file has no audio track.")
    stream = container.streams.audio[0]
    if stream.codec_context is None:
        raise MediaDecodeError("The audio track's codec is not known: the file is damaged or cut off.", code="unsupported_audio_format")
    return stream


def _decode(container: InputContainer, stream: AudioStream, deadline_seconds: float) -> Iterator[av.AudioFrame]:
    try:
        for packet in container.demux(stream):
            _check_time(deadline_seconds)
            try:
                frames = stream.decode(packet)
            except av.FFmpegError:
                continue
            yield from frames
    except (av.FFmpegError, OSError):
        return  # cut off or unreadable from here on
