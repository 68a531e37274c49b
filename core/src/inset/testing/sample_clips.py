"""Videos and sounds made on the spot, for tests and benchmarks."""

from __future__ import annotations

import io
from collections.abc import Mapping, Sequence
from fractions import Fraction
from typing import TYPE_CHECKING, Any

import av
import numpy as np
import soundfile

if TYPE_CHECKING:
    from numpy.typing import NDArray

__all__ = ["decode_plainly", "encode_sound", "encode_sound_track", "make_tone", "make_video"]

_TICKS_PER_SECOND = 1000
_WRITTEN_SAMPLES = 16_384


def make_video(
    num_frames: int,
    *,
    container: str = "mp4",
    codec: str = "mpeg4",
    width: int = 64,
    height: int = 48,
    fps: int = 30,
    keyframe_every: int = 12,
    rotation: int = 0,
    timestamps_seconds: Sequence[float] | None = None,
    sound: NDArray[np.float32] | None = None,
    options: Mapping[str, str] | None = None,
    container_options: Mapping[str, str] | None = None,
) -> bytes:
    """Returns a video whose frames all differ: a bar wanders from left to right while the background brightens.

    Args:
        num_frames: How many frames.
        container: FFmpeg's name of the container format.
        codec: FFmpeg's name of the encoder.
        width: Pixels.
        height: Pixels.
        fps: Frames per second.
        keyframe_every: Largest distance between keyframes, in frames.
        rotation: Clockwise turn that the container asks players for, in degrees.
        timestamps_seconds: When each frame is shown, instead of a steady rate.
        sound: A second track, ``(num_channels, num_samples)`` float32 at 16 kHz.
        options: Options of the encoder.
        container_options: Options of the container format.
    """
    buffer = io.BytesIO()
    with av.open(buffer, "w", format=container, options=dict(container_options or {})) as output:
        stream: Any = output.add_stream(codec, rate=fps)
        stream.width, stream.height, stream.pix_fmt, stream.gop_size = width, height, "yuv420p", keyframe_every
        # No keyframes where a scene seems to change, so that they stand where they were asked for.
        stream.options = {"sc_threshold": "1000000000" if codec != "libx264" else "0", **(options or {})}
        if timestamps_seconds is not None:
            stream.codec_context.time_base = Fraction(1, _TICKS_PER_SECOND)
        if rotation:
            stream.set_display_rotation(-rotation)
        track = _add_sound_track(output, sound, "aac") if sound is not None else None
        for index in range(num_frames):
            frame = av.VideoFrame.from_ndarray(_picture(index, width, height), format="rgb24")
            if timestamps_seconds is not None:
                frame.pts, frame.time_base = round(timestamps_seconds[index] * _TICKS_PER_SECOND), Fraction(1, _TICKS_PER_SECOND)
            output.mux(stream.encode(frame))
        output.mux(stream.encode(None))
        if track is not None and sound is not None:
            _mux_sound(output, track, sound, 16_000)
    return buffer.getvalue()


def _picture(index: int, width: int, height: int) -> NDArray[np.uint8]:
    picture = np.full((height, width, 3), 40 + index % 160, dtype=np.uint8)
    picture[:, index % width] = (255, 255, 0)
    picture[: height // 4, : width // 4] = (255, 0, 0)
    return picture


def decode_plainly(data: bytes) -> list[NDArray[np.uint8]]:
    """Returns every frame that PyAV alone decodes, ``(height, width, 3)`` uint8, not rotated."""
    with av.open(io.BytesIO(data)) as container:
        return [frame.to_ndarray(format="rgb24") for frame in container.decode(video=0)]


def make_tone(num_samples: int, *, num_channels: int = 1, sampling_rate: int = 16_000) -> NDArray[np.float32]:
    """Returns tones ``(num_channels, num_samples)`` float32 at half of full scale, each channel another one."""
    seconds = np.arange(num_samples, dtype=np.float64) / sampling_rate
    pitches = 220.0 * (1 + np.arange(num_channels))
    return (0.5 * np.sin(2 * np.pi * pitches[:, None] * seconds)).astype(np.float32)


def encode_sound(samples: NDArray[Any], sound_format: str = "WAV", *, sampling_rate: int = 16_000, subtype: str | None = None) -> bytes:
    """Returns sound ``(num_channels, num_samples)`` as a file in one of libsndfile's formats."""
    buffer = io.BytesIO()
    with soundfile.SoundFile(buffer, "w", sampling_rate, len(samples), format=sound_format, subtype=subtype) as sound:
        for start in range(0, samples.shape[1], _WRITTEN_SAMPLES):  # libsndfile crashes on one large write of Ogg
            sound.write(samples.T[start : start + _WRITTEN_SAMPLES])
    return buffer.getvalue()


def encode_sound_track(samples: NDArray[np.float32], *, container: str, codec: str, sampling_rate: int = 16_000) -> bytes:
    """Returns sound ``(num_channels, num_samples)`` as the only track of one of FFmpeg's containers."""
    buffer = io.BytesIO()
    with av.open(buffer, "w", format=container) as output:
        track = _add_sound_track(output, samples, codec, sampling_rate)
        _mux_sound(output, track, samples, sampling_rate)
    return buffer.getvalue()


def _add_sound_track(output: Any, samples: NDArray[np.float32], codec: str, sampling_rate: int = 16_000) -> Any:
    return output.add_stream(codec, rate=sampling_rate, layout={1: "mono", 2: "stereo"}[len(samples)])


def _mux_sound(output: Any, track: Any, samples: NDArray[np.float32], sampling_rate: int) -> None:
    frame = av.AudioFrame.from_ndarray(samples, format="fltp", layout=track.codec_context.layout.name)
    frame.sample_rate, frame.pts = sampling_rate, 0
    output.mux(track.encode(frame))
    output.mux(track.encode(None))
