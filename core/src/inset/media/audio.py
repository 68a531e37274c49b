"""Decodes sound at its own rate; resampling and mixing down are steps that are mapped onto the reference."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, ClassVar, Final

import numpy as np
import soxr

from inset.config import MediaConfig
from inset.errors import InvalidRequestError, MediaDecodeError, TooLargeError
from inset.identity import JSON, DecodeSpec
from inset.media.audio_readers import SoundFacts, is_sound_file, iter_pyav, iter_soundfile, probe_pyav, probe_soundfile
from inset.media.decoded import AudioSamples
from inset.media.header import MediaHeader
from inset.media.io import MediaIO
from inset.media.options import MediaOptions

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from inset.media.ref import MediaRef

__all__ = ["AudioHeader", "AudioIO", "mix_down", "resample"]

_BACKENDS: Final = ("auto", "soundfile", "pyav")
_MAX_SAMPLING_RATE: Final = 768_000
_MAX_CHANNELS: Final = 64
_BYTES_PER_SAMPLE: Final = 4


@dataclass(frozen=True, slots=True, kw_only=True)
class AudioHeader(MediaHeader):
    """The header of sound with the reader that understood it: ``soundfile`` or ``pyav``."""

    backend: str


class AudioIO(MediaIO[AudioSamples]):
    """Decodes sound, also out of a video container, to `AudioSamples` at its own rate with all its channels.

    Option: `audio_backend` (``auto``, ``soundfile`` or ``pyav``; by default soundfile for sound files that it understands, else PyAV).
    """

    modality: ClassVar[str] = "audio"

    def __init__(self, options: Mapping[str, JSON], config: MediaConfig) -> None:
        """Makes a decoder.

        Raises:
            InvalidRequestError: An option is unknown or has a wrong value.
        """
        super().__init__(config)
        reader = MediaOptions(self.modality, options)
        self._backend = reader.choice("audio_backend", "auto", _BACKENDS)
        reader.finish()

    def get_decode_spec(self) -> DecodeSpec:
        """Returns the backend that was asked for."""
        return DecodeSpec({"audio_backend": self._backend})

    def get_header_settings(self, header: MediaHeader) -> Mapping[str, JSON]:
        """Returns the backend that decodes."""
        return {"audio_backend_used": header.backend} if isinstance(header, AudioHeader) else {}

    def probe(self, data: bytes) -> AudioHeader:
        """Returns rate, channels and length; decodes nothing.

        Raises:
            MediaDecodeError: The bytes are not sound in a format that is read, or there is none in them.
            TooLargeError: The sound is too long.
        """
        backend, facts = self._find_facts(data)
        if not 0 < facts.sampling_rate <= _MAX_SAMPLING_RATE or not 0 < facts.num_channels <= _MAX_CHANNELS:
            raise MediaDecodeError(f"The sound has {facts.sampling_rate} samples per second in {facts.num_channels} channels.")
        seconds = facts.num_samples / facts.sampling_rate
        if seconds > self._config.max_audio_seconds:
            raise TooLargeError(f"The sound is {seconds:,.0f} seconds long; {self._config.max_audio_seconds:,.0f} are allowed.")
        return AudioHeader(
            modality=self.modality,
            format=facts.format,
            mode=facts.mode,
            duration_seconds=seconds,
            sampling_rate=facts.sampling_rate,
            num_channels=facts.num_channels,
            num_samples=facts.num_samples,
            decoded_bytes=facts.max_samples * facts.num_channels * _BYTES_PER_SAMPLE,
            peak_bytes=2 * facts.max_samples * facts.num_channels * _BYTES_PER_SAMPLE,  # what is shorter than announced is copied
            backend=backend,
        )

    def load_bytes(self, data: bytes, header: MediaHeader | None = None) -> AudioSamples:
        """Decodes all samples; sound that is cut off gives what there is.

        Raises:
            MediaDecodeError: There are no samples, more than the header said, or some that are no numbers, or decoding took too long.
        """
        if not isinstance(header, AudioHeader):
            header = self.probe(data)
        deadline = time.monotonic() + self._config.max_video_decode_seconds
        read = iter_soundfile if header.backend == "soundfile" else iter_pyav
        return AudioSamples(samples=_gather(read(data, deadline_seconds=deadline), header), sampling_rate=header.sampling_rate or 0)

    def _find_facts(self, data: bytes) -> tuple[str, SoundFacts]:
        if self._backend == "soundfile" or (self._backend == "auto" and is_sound_file(data)):
            facts = probe_soundfile(data)
            if facts is not None:
                return "soundfile", facts
            if self._backend == "soundfile":
                raise MediaDecodeError("The sound cannot be read by the backend soundfile, or it is empty.")
        return "pyav", probe_pyav(data, deadline_seconds=time.monotonic() + self._config.max_video_decode_seconds)


def resample(ref: MediaRef[AudioSamples], sampling_rate: int) -> MediaRef[AudioSamples]:
    """Returns a reference to the sound at another rate, in samples per second; the same reference where it has that rate already.

    Raises:
        InvalidRequestError: The rate is not possible.
    """
    if not 0 < sampling_rate <= _MAX_SAMPLING_RATE:
        raise InvalidRequestError(f"A sampling rate must be from 1 to {_MAX_SAMPLING_RATE}, not {sampling_rate}.", modality="audio")
    header = ref.header
    if header.sampling_rate == sampling_rate:
        return ref
    from_rate, num_channels = header.sampling_rate or sampling_rate, header.num_channels or 1
    decoded_bytes = _resampled_length(_max_samples(header), from_rate, sampling_rate) * num_channels * _BYTES_PER_SAMPLE
    changed = replace(
        header,
        sampling_rate=sampling_rate,
        num_samples=_resampled_length(header.num_samples or 0, from_rate, sampling_rate),
        decoded_bytes=decoded_bytes,
        peak_bytes=max(header.peak_bytes, header.decoded_bytes + 2 * decoded_bytes),  # the resampler's result is copied once
    )

    def transform(sound: AudioSamples) -> AudioSamples:
        return _resample(sound, sampling_rate)

    return ref.map(transform, header=changed, sampling_rate=sampling_rate, resampler="soxr-hq")


def mix_down(ref: MediaRef[AudioSamples]) -> MediaRef[AudioSamples]:
    """Returns a reference to one channel, the mean of all; the same reference where there is only one."""
    header = ref.header
    if header.num_channels == 1:
        return ref
    decoded_bytes = _max_samples(header) * _BYTES_PER_SAMPLE
    peak_bytes = max(header.peak_bytes, header.decoded_bytes + decoded_bytes)
    changed = replace(header, num_channels=1, decoded_bytes=decoded_bytes, peak_bytes=peak_bytes)
    return ref.map(_mix_down, header=changed, num_channels=1, mix="mean")


def _gather(blocks: Iterator[NDArray[np.float32]], header: AudioHeader) -> NDArray[np.float32]:
    samples = np.empty((header.num_channels or 0, _max_samples(header)), dtype=np.float32)
    end = 0
    for block in blocks:
        if block.shape[0] != samples.shape[0]:
            raise MediaDecodeError("Sampling rate or channels change within the sound.")
        start, end = end, end + block.shape[1]
        if end > samples.shape[1]:
            raise MediaDecodeError("There is more sound than the header says.")
        if not np.isfinite(block).all():
            raise MediaDecodeError("The sound has samples that are not numbers.")
        samples[:, start:end] = block
    if not end:
        raise MediaDecodeError("The sound has no samples, or none that can be decoded.")
    if end < samples.shape[1]:
        samples = np.ascontiguousarray(samples[:, :end])
    return samples


def _max_samples(header: MediaHeader) -> int:
    return header.decoded_bytes // ((header.num_channels or 1) * _BYTES_PER_SAMPLE)


def _resampled_length(num_samples: int, from_rate: int, to_rate: int) -> int:
    return max(1, (2 * num_samples * to_rate + from_rate) // (2 * from_rate)) if num_samples else 0


def _resample(sound: AudioSamples, sampling_rate: int) -> AudioSamples:
    length = _resampled_length(sound.samples.shape[1], sound.sampling_rate, sampling_rate)
    converted = soxr.resample(sound.samples.T, sound.sampling_rate, sampling_rate, quality="HQ").T[:, :length]
    samples = np.zeros((sound.samples.shape[0], length), dtype=np.float32)
    samples[:, : converted.shape[1]] = converted
    return AudioSamples(samples=samples, sampling_rate=sampling_rate)


def _mix_down(sound: AudioSamples) -> AudioSamples:
    return AudioSamples(samples=sound.samples.mean(axis=0, keepdims=True, dtype=np.float32), sampling_rate=sound.sampling_rate)
