"""Videos that are damaged, or larger than allowed: what is left of them, or an error."""

from __future__ import annotations

import io
import subprocess
import sys
from collections.abc import Mapping
from fractions import Fraction
from typing import Any

import av
import numpy as np
import pytest

from inset.config import MediaConfig
from inset.errors import MediaDecodeError, TooLargeError
from inset.identity import JSON
from inset.media.decoded import VideoFrames
from inset.media.ref import MediaRef
from inset.media.sampling import VideoSampler
from inset.media.video import VideoIO
from inset.testing.sample_clips import decode_plainly, make_video
from inset.testing.sample_images import encode_image, make_pixels

ALL: Mapping[str, JSON] = {"num_frames": -1}


CLIP = make_video(40)


def load(
    data: bytes, options: Mapping[str, JSON] | None = None, *, config: MediaConfig | None = None, sampler: VideoSampler | None = None
) -> MediaRef[VideoFrames]:
    return VideoIO(options or {}, config or MediaConfig(), sampler=sampler).load_bytes_ref(data)


class TestDamage:
    def test_mp4_cut_anywhere_is_an_error_or_a_shorter_video_never_a_crash(self) -> None:
        """Inside its index above all, where a track may be named and its codec not."""
        data = make_video(30)
        for length in range(len(data) // 2, len(data), 7):
            try:
                assert 0 < len(load(data[:length]).decode().frames) <= 30
            except MediaDecodeError:
                continue

    def test_mp4_cut_before_its_index_is_refused(self) -> None:
        with pytest.raises(MediaDecodeError) as caught:
            load(CLIP[: CLIP.index(b"moov")])
        assert (caught.value.status, caught.value.stage, caught.value.modality) == (422, "probe", "video")

    @pytest.mark.parametrize("container", ["matroska", "mpegts", "avi", "flv"])
    def test_half_a_file_gives_the_half_that_is_there(self, container: str) -> None:
        data = make_video(200, container=container, codec="flv1" if container == "flv" else "mpeg4")
        ref = load(data[: len(data) // 2], ALL)
        assert 50 < (ref.header.total_num_frames or 0) < 150
        decoded = ref.decode()
        assert 50 < len(decoded.frames) <= (ref.header.num_frames or 0)
        assert len(decoded.frame_indices) == len(decoded.timestamps_seconds) == len(decoded.frames)

    def test_half_an_mp4_with_its_index_in_front_gives_the_half_that_is_there(self) -> None:
        data = make_video(60, container_options={"movflags": "frag_keyframe+empty_moov"})
        ref = load(data[: len(data) // 2], ALL)
        assert (ref.header.total_num_frames or 0) < 50
        assert 10 < len(ref.decode().frames) < 50

    def test_unreadable_middle_leaves_its_frames_out_at_most(self) -> None:
        data = bytearray(make_video(60, codec="libx264", keyframe_every=10))
        middle = data.index(b"mdat") + (data.index(b"moov") - data.index(b"mdat")) // 2
        data[middle : middle + 300] = bytes(300)
        decoded = load(bytes(data), ALL).decode()
        assert 30 < len(decoded.frames) <= 60
        assert list(decoded.frame_indices) == sorted(set(decoded.frame_indices))

    @pytest.mark.parametrize("options", [ALL, {"num_frames": 8}, {"fps": 2}], ids=str)
    def test_unreadable_tail_gives_what_stands_before_it(self, options: Mapping[str, JSON]) -> None:
        data = bytearray(make_video(60, codec="libx264", keyframe_every=10))
        end = data.index(b"moov") - 4
        start = end - (end - data.index(b"mdat")) // 4
        data[start:end] = bytes(end - start)
        ref = load(bytes(data), options)
        decoded = ref.decode()
        assert 0 < len(decoded.frames) <= (ref.header.num_frames or 0)
        assert len(decoded.frame_indices) == len(decoded.timestamps_seconds) == len(decoded.frames)
        plain = decode_plainly(make_video(60, codec="libx264", keyframe_every=10))
        np.testing.assert_array_equal(decoded.frames[0], plain[decoded.frame_indices[0]])

    def test_frames_of_another_size_on_the_way_are_scaled(self) -> None:
        data = make_video(10, container="mpegts", codec="mpeg2video") + make_video(
            10, container="mpegts", codec="mpeg2video", width=96, height=80
        )
        ref = load(data, ALL)
        decoded = ref.decode()
        assert decoded.frames.shape[1:] == (ref.header.height, ref.header.width, 3)
        assert len(decoded.frames) >= 10

    def test_track_in_an_unknown_codec_is_refused(self) -> None:
        data = make_video(3, container="matroska").replace(b"V_MPEG4/ISO/ASP", b"V_MPEG4/ISO/XXX")
        with pytest.raises(MediaDecodeError, match="codec is not known") as caught:
            load(data)
        assert (caught.value.code, caught.value.modality) == ("unsupported_video_format", "video")

    def test_decoding_has_a_time_limit(self) -> None:
        io_ = VideoIO({}, MediaConfig(max_video_decode_seconds=1e-9))
        with pytest.raises(MediaDecodeError) as caught:
            io_.load_bytes_ref(CLIP)
        assert caught.value.code == "media_decode_timeout"
        with pytest.raises(MediaDecodeError) as caught:
            io_.load_bytes(CLIP, VideoIO({}, MediaConfig()).probe(CLIP))
        assert caught.value.code == "media_decode_timeout"

    @pytest.mark.parametrize(
        "data",
        [
            b"#EXTM3U\n#EXT-X-TARGETDURATION:10\n#EXTINF:10,\nfile:///etc/passwd\n",
            b"ffconcat version 1.0\nfile /etc/passwd\n",
            b'<?xml version="1.0"?><MPD xmlns="urn:mpeg:dash:schema:mpd:2011"></MPD>',
            b"v=0\no=- 0 0 IN IP4 127.0.0.1\nm=video 5004 RTP/AVP 96\n",
            encode_image(make_pixels(8, 8), "PNG"),
        ],
        ids=["hls", "concat", "dash", "sdp", "image"],
    )
    def test_what_would_open_other_files_is_no_video(self, data: bytes) -> None:
        with pytest.raises(MediaDecodeError) as caught:
            load(data)
        assert caught.value.code == "unsupported_video_format"


def make_growing_video(codec: str, options: Mapping[str, str], *, side: int) -> bytes:
    """Returns a Matroska file whose header says 64x64, with four such frames and four of another size behind them."""
    buffer = io.BytesIO()
    with av.open(buffer, "w", format="matroska") as output:
        stream: Any = output.add_stream(codec, rate=10)
        stream.width, stream.height, stream.pix_fmt, stream.time_base = 64, 64, "yuv420p", Fraction(1, 10)
        for first, width in ((0, 64), (4, side)):
            encoder: Any = av.CodecContext.create(codec, "w")
            encoder.width, encoder.height, encoder.pix_fmt, encoder.time_base = width, width, "yuv420p", Fraction(1, 10)
            encoder.options = dict(options)
            frame = av.VideoFrame.from_ndarray(np.full((width, width, 3), 90, np.uint8), format="rgb24").reformat(format="yuv420p")
            packets: list[Any] = []
            for number in range(first, first + 4):
                frame.pts = number
                packets += encoder.encode(frame)
            for packet in [*packets, *encoder.encode(None)]:
                packet.stream, packet.time_base = stream, Fraction(1, 10)
                output.mux(packet)
    return buffer.getvalue()


class TestCaps:
    @pytest.mark.parametrize(
        ("codec", "options"),
        [
            ("mpeg4", {}),
            ("libvpx", {"deadline": "realtime", "cpu-used": "8"}),
            ("libvpx-vp9", {"deadline": "realtime", "cpu-used": "8"}),
            ("libsvtav1", {"preset": "12"}),
            ("libx265", {"preset": "ultrafast", "x265-params": "log-level=none"}),
        ],
    )
    def test_frames_that_grow_over_the_cap_on_the_way_are_refused_by_the_codec(self, codec: str, options: Mapping[str, str]) -> None:
        data = make_growing_video(codec, options, side=256)
        assert load(data, ALL).decode().frames.shape == (8, 64, 64, 3)
        ref = load(data, ALL, config=MediaConfig(max_image_pixels=64 * 64))
        assert (ref.header.width, ref.header.height) == (64, 64)
        with pytest.raises(TooLargeError, match="at most 36,864 pixels") as caught:
            ref.decode()
        assert (caught.value.status, caught.value.modality, caught.value.stage) == (413, "video", "decode")

    @pytest.mark.parametrize("side", [1, 17, 64])
    def test_frames_of_exactly_the_cap_are_decoded(self, side: int) -> None:
        data = make_video(3, codec="libvpx-vp9", container="webm", width=side, height=side)
        assert load(data, config=MediaConfig(max_image_pixels=side * side)).decode().frames.shape == (3, side, side, 3)

    def test_frames_times_pixels_are_checked_before_allocation(self) -> None:
        config = MediaConfig(max_item_decoded_bytes=64 * 48 * 3 * 10)
        assert load(CLIP, {"num_frames": 10}, config=config).header.decoded_bytes == 64 * 48 * 3 * 10
        with pytest.raises(TooLargeError) as caught:
            load(CLIP, {"num_frames": 11}, config=config)
        assert (caught.value.status, caught.value.modality, caught.value.stage) == (413, "video", "probe")

    def test_pixels_of_a_frame_are_capped(self) -> None:
        with pytest.raises(TooLargeError, match="64x48"):
            load(CLIP, config=MediaConfig(max_image_pixels=64 * 48 - 1))

    def test_refusing_more_frames_than_the_budget_holds_grows_little(self) -> None:
        done = subprocess.run([sys.executable, "-c", MEASURE_REFUSAL], capture_output=True, text=True, timeout=120, check=False)
        assert done.returncode == 0, done.stderr[-2000:]
        assert float(done.stdout) < 64


MEASURE_REFUSAL = """
import resource
from inset.config import MediaConfig
from inset.errors import TooLargeError
from inset.media.video import VideoIO
from inset.testing.sample_clips import make_video

data = make_video(90, width=1920, height=1080, keyframe_every=300)
VideoIO({}, MediaConfig()).load_bytes_ref(make_video(3))
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
try:
    VideoIO({"num_frames": -1}, MediaConfig()).load_bytes_ref(data)
except TooLargeError:
    pass
else:
    raise SystemExit("not refused")
print((resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) / 1024)
"""
