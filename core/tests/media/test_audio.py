"""Audio: native rate first, bounded by what the header says, never silence for damage."""

from __future__ import annotations

import io
import struct
import subprocess
import sys
from collections.abc import Mapping
from typing import Any, ClassVar

import numpy as np
import pytest
import soundfile

from inset.config import MediaConfig
from inset.errors import InvalidRequestError, MediaDecodeError, TooLargeError
from inset.identity import JSON
from inset.media.audio import AudioIO, mix_down, resample
from inset.media.decoded import AudioSamples
from inset.media.header import MediaHeader
from inset.media.ref import MediaRef
from inset.testing.conformance.media_io import MediaIOConformance
from inset.testing.sample_clips import encode_sound, encode_sound_track, make_tone, make_video

TONE = make_tone(8000, num_channels=2)


def load(data: bytes, options: Mapping[str, JSON] | None = None, config: MediaConfig | None = None) -> MediaRef[AudioSamples]:
    return AudioIO(options or {}, config or MediaConfig()).load_bytes_ref(data)


class AudioConformance(MediaIOConformance):
    options: ClassVar[Mapping[str, JSON]] = {"audio_backend": "auto"}
    other_options: ClassVar[Mapping[str, JSON]] = {"audio_backend": "pyav"}

    def make_io(self, options: Mapping[str, JSON], config: MediaConfig) -> AudioIO:
        return AudioIO(options, config)

    def make_bomb(self) -> bytes:
        return encode_sound(np.zeros((1, 3_000_000), np.float32), "FLAC")

    def array_of(self, decoded: AudioSamples) -> np.ndarray[Any, Any]:
        return decoded.samples

    def check_truncated(self, decoded: AudioSamples) -> None:
        assert 0 < decoded.samples.shape[1] <= TONE.shape[1] + 2048


class TestWavConformance(AudioConformance):
    def make_media(self) -> bytes:
        return encode_sound(TONE, "WAV", subtype="FLOAT")

    def check_decoded(self, decoded: AudioSamples, header: MediaHeader) -> None:
        assert (header.format, header.sampling_rate, header.num_channels, header.num_samples) == ("WAV", 16_000, 2, 8000)
        assert (header.duration_seconds, decoded.sampling_rate) == (0.5, 16_000)
        assert decoded.samples.dtype == np.float32
        np.testing.assert_array_equal(decoded.samples, TONE)


class TestAacConformance(AudioConformance):
    def make_media(self) -> bytes:
        return encode_sound_track(TONE, container="mp4", codec="aac")

    def check_decoded(self, decoded: AudioSamples, header: MediaHeader) -> None:
        assert (header.format, header.sampling_rate, header.num_channels) == ("mp4", 16_000, 2)
        assert abs((header.num_samples or 0) - 8000) < 1100
        assert np.abs(decoded.samples[:, 1000:7000] - TONE[:, 1000:7000]).mean() < 0.02


class TestFormats:
    @pytest.mark.parametrize(
        ("sound_format", "subtype", "tolerance"),
        [
            ("WAV", "PCM_U8", 1e-2),
            ("WAV", "PCM_16", 1e-4),
            ("WAV", "PCM_24", 1e-6),
            ("WAV", "FLOAT", 0),
            ("WAV", "DOUBLE", 0),
            ("WAV", "ULAW", 3e-2),
            ("FLAC", "PCM_16", 1e-4),
            ("AIFF", "PCM_16", 1e-4),
            ("CAF", "PCM_16", 1e-4),
            ("AU", "PCM_16", 1e-4),
            ("OGG", "VORBIS", 5e-2),
            ("OGG", "OPUS", 5e-2),
        ],
    )
    def test_sound_files_come_back_sample_for_sample(self, sound_format: str, subtype: str, tolerance: float) -> None:
        ref = load(encode_sound(TONE, sound_format, subtype=subtype))
        decoded = ref.decode()
        assert decoded.samples.shape == (2, ref.header.num_samples) == (2, 8000)
        assert np.abs(decoded.samples[:, 1000:7000] - TONE[:, 1000:7000]).max() <= tolerance

    @pytest.mark.parametrize(
        ("container", "codec"),
        [
            ("mp4", "aac"),
            ("matroska", "libopus"),
            ("mpegts", "aac"),
            ("adts", "aac"),
            ("avi", "mp3"),
            ("mp3", "libmp3lame"),
            ("webm", "libopus"),
        ],
    )
    def test_other_containers_are_read_by_pyav(self, container: str, codec: str) -> None:
        ref = load(encode_sound_track(TONE, container=container, codec=codec))
        decoded = ref.decode()
        seconds = decoded.samples.shape[1] / decoded.sampling_rate
        assert ref.spec.settings["audio_backend_used"] == "pyav"
        assert abs(seconds - 0.5) < 0.1
        assert abs((ref.header.duration_seconds or 0) - seconds) < 0.1
        assert np.abs(decoded.samples).max() > 0.3

    @pytest.mark.parametrize("num_channels", [1, 3, 6, 8])
    def test_any_number_of_channels_is_kept(self, num_channels: int) -> None:
        tone = make_tone(500, num_channels=num_channels)
        decoded = load(encode_sound(tone, "WAV", subtype="FLOAT")).decode()
        np.testing.assert_array_equal(decoded.samples, tone)
        again = load(encode_sound(tone, "WAV", subtype="FLOAT"), {"audio_backend": "pyav"}).decode()
        np.testing.assert_array_equal(again.samples, tone)

    def test_one_sample_is_sound(self) -> None:
        assert load(encode_sound(make_tone(1))).decode().samples.shape == (1, 1)

    @pytest.mark.parametrize("sound_format", ["WAV", "FLAC", "OGG", "AIFF", "CAF"])
    def test_no_samples_is_an_error(self, sound_format: str) -> None:
        with pytest.raises((MediaDecodeError, InvalidRequestError)) as caught:
            load(encode_sound(np.zeros((1, 0), np.float32), sound_format)).decode()
        assert isinstance(caught.value, MediaDecodeError)

    def test_mp3_without_any_header_is_read(self) -> None:
        data = encode_sound(TONE, "MP3")
        second_frame = data.index(data[:2], 200)
        ref = load(data[second_frame:])
        assert ref.decode().samples.shape[1] > 6000

    @pytest.mark.parametrize("padding", [b"\0" * 5000, b"\xff" * 300])
    def test_ogg_with_padding_at_the_end_is_read_whole(self, padding: bytes) -> None:
        assert load(encode_sound(TONE, "OGG") + padding).decode().samples.shape == (2, 8000)

    def test_audio_track_of_a_video_is_read(self) -> None:
        decoded = load(make_video(30, sound=make_tone(16_000))).decode()
        assert abs(decoded.samples.shape[1] - 16_000) < 2100
        assert np.abs(decoded.samples[0, 2000:14_000]).max() > 0.4

    def test_pictures_beside_the_sound_may_be_larger_than_what_is_looked_at(self) -> None:
        data = make_video(3, width=1280, height=1024, sound=make_tone(16_000))
        assert abs(load(data).decode().samples.shape[1] - 16_000) < 2100

    def test_video_without_audio_track_is_refused(self) -> None:
        with pytest.raises(MediaDecodeError, match="no audio track"):
            load(make_video(3))


class TestLies:
    def test_wav_that_claims_more_than_it_has_gives_what_it_has(self) -> None:
        data = bytearray(encode_sound(TONE))
        at = data.index(b"data") + 4
        data[at : at + 4] = struct.pack("<I", 0xFFFFFFFF)
        assert load(bytes(data)).decode().samples.shape == (2, 8000)

    def test_flac_of_unknown_length_is_read(self) -> None:
        data = bytearray(encode_sound(TONE, "FLAC"))
        data[21] &= 0xF0
        data[22:26] = bytes(4)
        assert load(bytes(data)).decode().samples.shape == (2, 8000)

    def test_flac_that_claims_less_than_it_has_never_gives_more_than_it_claims(self) -> None:
        data = bytearray(encode_sound(TONE, "FLAC"))
        data[22:26] = struct.pack(">I", 100)
        ref = load(bytes(data))
        try:
            assert ref.decode().samples.nbytes <= ref.header.decoded_bytes
        except MediaDecodeError as error:
            assert "more sound" in error.message  # noqa: PT017 - either outcome is right

    def test_track_in_an_unknown_codec_is_refused(self) -> None:
        data = encode_sound_track(TONE, container="matroska", codec="aac").replace(b"A_AAC", b"A_XXX")
        with pytest.raises(MediaDecodeError, match="codec is not known") as caught:
            load(data)
        assert (caught.value.code, caught.value.modality) == ("unsupported_audio_format", "audio")

    def test_damage_that_leads_before_the_beginning_is_not_printed(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """An exception in a callback of a C library goes to standard error, with paths of this machine."""
        printed: list[object] = []
        monkeypatch.setattr(sys, "unraisablehook", printed.append)
        data = bytearray(encode_sound(TONE, "AIFF"))
        data[38] = 255
        with pytest.raises(MediaDecodeError):
            load(bytes(data)).decode()
        assert printed == []

    @pytest.mark.parametrize("channels", [(1, 2), (2, 1)])
    def test_channels_that_change_on_the_way_are_an_error(self, channels: tuple[int, int]) -> None:
        data = b"".join(encode_sound(TONE[:number], "MP3") for number in channels)
        with pytest.raises(MediaDecodeError, match="channels change"):
            load(data).decode()

    @pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
    def test_samples_that_are_no_numbers_are_refused(self, value: float) -> None:
        tone = TONE.copy()
        tone[1, 77] = value
        with pytest.raises(MediaDecodeError, match="not numbers") as caught:
            load(encode_sound(tone, "WAV", subtype="FLOAT")).decode()
        assert (caught.value.stage, caught.value.modality) == ("decode", "audio")

    def test_every_truncation_ends_in_an_error_or_less_sound(self) -> None:
        for data in (encode_sound(TONE, "OGG"), encode_sound(TONE, "FLAC"), encode_sound_track(TONE, container="mp4", codec="aac")):
            for length in range(1, len(data), len(data) // 25):
                try:
                    assert load(data[:length]).decode().samples.shape[1] > 0
                except MediaDecodeError as error:
                    assert error.modality == "audio"  # noqa: PT017 - either outcome is right


class TestCaps:
    def test_seconds_are_capped_from_the_header(self) -> None:
        data = encode_sound(TONE)
        assert load(data, config=MediaConfig(max_audio_seconds=0.5)).header.duration_seconds == 0.5
        with pytest.raises(TooLargeError, match="seconds") as caught:
            load(data, config=MediaConfig(max_audio_seconds=0.49))
        assert (caught.value.status, caught.value.stage, caught.value.modality) == (413, "probe", "audio")

    def test_a_small_file_that_unpacks_to_274_mebibytes_is_refused_without_growing(self) -> None:
        done = subprocess.run([sys.executable, "-c", MEASURE_REFUSAL], capture_output=True, text=True, timeout=120, check=False)
        assert done.returncode == 0, done.stderr[-2000:]
        assert float(done.stdout) < 64

    @pytest.mark.parametrize(
        "data", [encode_sound(TONE), encode_sound(TONE, "FLAC"), encode_sound_track(TONE, container="mp4", codec="aac")]
    )
    def test_decoding_has_a_time_limit_whoever_reads(self, data: bytes) -> None:
        header = AudioIO({}, MediaConfig()).probe(data)
        with pytest.raises(MediaDecodeError, match="took too long") as caught:
            AudioIO({}, MediaConfig(max_video_decode_seconds=1e-9)).load_bytes(data, header)
        assert caught.value.code == "media_decode_timeout"

    def test_probing_has_a_time_limit(self) -> None:
        io_ = AudioIO({"audio_backend": "pyav"}, MediaConfig(max_video_decode_seconds=1e-9))
        with pytest.raises(MediaDecodeError) as caught:
            io_.load_bytes_ref(encode_sound_track(TONE, container="mp4", codec="aac"))
        assert caught.value.code == "media_decode_timeout"


MEASURE_REFUSAL = """
import io, resource
import numpy as np, soundfile
from inset.config import MediaConfig
from inset.errors import TooLargeError
from inset.media.audio import AudioIO

buffer = io.BytesIO()
with soundfile.SoundFile(buffer, "w", 48000, 1, format="FLAC") as sound:
    for _ in range(72):
        sound.write(np.zeros(1_000_000, np.int16))
data = buffer.getvalue()
assert len(data) < 400_000, len(data)
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
try:
    AudioIO({}, MediaConfig(max_item_decoded_bytes=128 * 1024**2)).load_bytes_ref(data)
except TooLargeError as error:
    assert "274" in error.message, error.message
else:
    raise SystemExit("not refused")
print((resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) / 1024)
"""


class TestSteps:
    @pytest.mark.parametrize(("from_rate", "to_rate"), [(16_000, 8_000), (16_000, 24_000), (44_100, 16_000), (8_000, 44_100)])
    def test_resampled_length_is_what_the_header_says(self, from_rate: int, to_rate: int) -> None:
        tone = make_tone(4801, sampling_rate=from_rate)
        ref = resample(load(encode_sound(tone, sampling_rate=from_rate)), to_rate)
        decoded = ref.decode()
        assert (ref.header.sampling_rate, decoded.sampling_rate) == (to_rate, to_rate)
        length = decoded.samples.shape[1]
        assert (length, decoded.samples.nbytes) == (ref.header.num_samples, ref.header.decoded_bytes)
        expected = make_tone(length, sampling_rate=to_rate)
        middle = slice(400, length - 400)
        assert np.abs(decoded.samples[0, middle] - expected[0, middle]).max() < 1e-2

    def test_peak_holds_whatever_the_steps_hold_on_the_way(self) -> None:
        ref = load(encode_sound(make_tone(48_000, num_channels=8, sampling_rate=48_000), sampling_rate=48_000))
        native = 48_000 * 8 * 4
        assert (ref.header.decoded_bytes, ref.header.peak_bytes) == (native, 2 * native)
        slow = mix_down(resample(ref, 16_000)).header
        assert (slow.decoded_bytes, slow.peak_bytes) == (16_000 * 4, 2 * native)
        fast = mix_down(resample(ref, 96_000)).header
        assert (fast.decoded_bytes, fast.peak_bytes) == (96_000 * 4, 5 * native)

    def test_mixing_down_is_the_mean(self) -> None:
        ref = mix_down(load(encode_sound(TONE, "WAV", subtype="FLOAT")))
        assert ref.header.num_channels == 1
        np.testing.assert_allclose(ref.decode().samples, TONE.mean(axis=0, keepdims=True), atol=1e-6)

    def test_steps_wait_for_decode_and_name_themselves(self) -> None:
        ref = load(encode_sound(TONE))
        mapped = resample(mix_down(ref), 8_000)
        assert not ref.is_decoded
        assert len({ref.key, mapped.key, mix_down(ref).key, resample(ref, 8_000).key}) == 4
        assert mapped.spec.settings["sampling_rate"] == 8_000
        assert mapped.decode().samples.shape == (1, 4000)

    def test_steps_that_change_nothing_keep_the_item(self) -> None:
        mono = load(encode_sound(make_tone(100)))
        assert mix_down(mono) is mono
        assert resample(mono, 16_000) is mono

    @pytest.mark.parametrize("rate", [0, -1, 10**9])
    def test_impossible_rates_are_refused(self, rate: int) -> None:
        with pytest.raises(InvalidRequestError, match="sampling rate"):
            resample(load(encode_sound(TONE)), rate)

    def test_one_sample_survives_resampling(self) -> None:
        assert resample(load(encode_sound(make_tone(1))), 8_000).decode().samples.shape == (1, 1)


@pytest.mark.parametrize("options", [{"audio_backend": "librosa"}, {"audio_backend": 1}, {"sr": 16_000}])
def test_wrong_options_are_named(options: Mapping[str, JSON]) -> None:
    with pytest.raises(InvalidRequestError, match=next(iter(options))):
        AudioIO(options, MediaConfig())


def test_backend_that_cannot_read_it_is_not_replaced_by_another() -> None:
    with pytest.raises(MediaDecodeError, match="soundfile"):
        load(encode_sound_track(TONE, container="mp4", codec="aac"), {"audio_backend": "soundfile"})


def test_playlist_is_no_sound_however_it_is_labelled() -> None:
    for text in (b"#EXTM3U\n#EXTINF:1,\nfile:///etc/passwd\n", b"ffconcat version 1.0\nfile '/etc/passwd'\n"):
        for options in ({}, {"audio_backend": "pyav"}):
            with pytest.raises(MediaDecodeError):
                load(text, options)


def test_soundfile_alone_gives_the_same_samples() -> None:
    data = encode_sound(TONE, "FLAC")
    np.testing.assert_array_equal(load(data).decode().samples, soundfile.read(io.BytesIO(data), dtype="float32")[0].T)
