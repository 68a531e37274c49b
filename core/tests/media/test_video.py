"""Videos: exactly the frames that were sampled, however the file is built, and no more work than they need."""

from __future__ import annotations

import io
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

import av
import numpy as np
import pytest

from inset.config import MediaConfig
from inset.errors import InvalidRequestError, MediaDecodeError, PluginContractError
from inset.identity import JSON
from inset.media.decoded import VideoFrames
from inset.media.header import MediaHeader
from inset.media.ref import MediaRef
from inset.media.sampling import VideoFacts, VideoSampler
from inset.media.video import VideoHeader, VideoIO
from inset.media.video_codec import fill_frames
from inset.media.video_index import VideoPlan
from inset.testing.conformance.media_io import MediaIOConformance
from inset.testing.sample_clips import decode_plainly, encode_sound_track, make_tone, make_video

ALL: Mapping[str, JSON] = {"num_frames": -1}
CLIP = make_video(40)


class Chosen:
    """A sampler that takes the frames it is told."""

    name = "chosen"

    def __init__(self, *indices: int) -> None:
        self.indices = indices
        self.facts: list[VideoFacts] = []

    def get_settings(self) -> Mapping[str, JSON]:
        return {"indices": list(self.indices)}

    def sample(self, facts: VideoFacts) -> Sequence[int]:
        self.facts.append(facts)
        return self.indices


def load(
    data: bytes, options: Mapping[str, JSON] | None = None, *, config: MediaConfig | None = None, sampler: VideoSampler | None = None
) -> MediaRef[VideoFrames]:
    return VideoIO(options or {}, config or MediaConfig(), sampler=sampler).load_bytes_ref(data)


def plan_of(ref: MediaRef[VideoFrames]) -> tuple[tuple[int, int], ...]:
    assert isinstance(ref.header, VideoHeader)
    return ref.header.plan.segments


class VideoConformance(MediaIOConformance):
    options: ClassVar[Mapping[str, JSON]] = {"fps": 5.0, "max_frames": 4}
    other_options: ClassVar[Mapping[str, JSON]] = {"num_frames": 5}

    def make_io(self, options: Mapping[str, JSON], config: MediaConfig) -> VideoIO:
        return VideoIO(options, config)

    def make_bomb(self) -> bytes:
        return make_video(3, width=1024, height=1024)

    def array_of(self, decoded: VideoFrames) -> np.ndarray[Any, Any]:
        return decoded.frames

    def check_truncated(self, decoded: VideoFrames) -> None:
        assert 0 < len(decoded.frames) == len(decoded.frame_indices) <= 32

    def check_decoded(self, decoded: VideoFrames, header: MediaHeader) -> None:
        assert (header.width, header.height, header.num_frames, header.total_num_frames) == (64, 48, 32, 40)
        assert decoded.frames.shape == (32, 48, 64, 3)
        assert decoded.frame_indices == header.frame_indices
        assert decoded.timestamps_seconds == header.timestamps_seconds
        assert (decoded.total_num_frames, decoded.fps, decoded.duration_seconds) == (40, header.fps, header.duration_seconds)
        assert decoded.fps == pytest.approx(30)
        assert decoded.duration_seconds == pytest.approx(4 / 3)


class TestMp4Conformance(VideoConformance):
    def make_media(self) -> bytes:
        return CLIP


class TestMatroskaConformance(VideoConformance):
    def make_media(self) -> bytes:
        return make_video(40, container="matroska")


class TestExactness:
    SAMPLES = (0, 3, 17, 29, 30, 31, 60, 61, 62, 88, 89, 95, 99)

    @pytest.mark.parametrize(
        ("container", "codec", "options"),
        [
            ("mp4", "mpeg4", {}),
            ("mp4", "libx264", {"bf": "3"}),
            ("mp4", "libx264", {"x264-params": "open-gop=1:bframes=3"}),
            ("mp4", "libx264", {"x264-params": "keyint=1"}),
            ("mp4", "libx264", {"x264-params": "intra-refresh=1:bframes=2"}),
            ("mpegts", "libx264", {"x264-params": "tff=1:bframes=5:b-pyramid=2"}),
            ("matroska", "libx264", {"bf": "2"}),
            ("mpegts", "libx264", {"bf": "3"}),
            ("mpegts", "mpeg2video", {"bf": "2"}),
            ("webm", "libvpx-vp9", {"deadline": "realtime", "cpu-used": "8"}),
            ("webm", "libvpx", {"deadline": "realtime", "cpu-used": "8"}),
            ("webm", "libvpx", {"deadline": "good", "cpu-used": "5", "auto-alt-ref": "1", "lag-in-frames": "16"}),
            ("avi", "mpeg4", {}),
            ("avi", "libx264", {"bf": "3"}),
            ("flv", "flv1", {}),
        ],
    )
    def test_sampled_frames_equal_those_of_decoding_everything_bit_for_bit(
        self, container: str, codec: str, options: Mapping[str, str]
    ) -> None:
        data = make_video(100, container=container, codec=codec, options=options, keyframe_every=10)
        everything = decode_plainly(data)
        assert len(everything) == 100
        decoded = load(data, sampler=Chosen(*self.SAMPLES)).decode()
        assert decoded.frame_indices == self.SAMPLES
        for frame, index in zip(decoded.frames, self.SAMPLES, strict=True):
            np.testing.assert_array_equal(frame, everything[index])

    def test_each_frame_alone_equals_the_same_frame_among_all(self) -> None:
        data = make_video(24, codec="libx264", options={"x264-params": "open-gop=1:bframes=3"}, keyframe_every=6)
        everything = load(data, ALL).decode().frames
        for index in range(24):
            np.testing.assert_array_equal(load(data, sampler=Chosen(index)).decode().frames[0], everything[index])

    def test_sparse_samples_skip_packets_and_dense_ones_go_straight_through(self) -> None:
        data = make_video(100, keyframe_every=10)
        sparse = load(data, sampler=Chosen(0, 51, 99))
        assert plan_of(sparse) == ((0, 1), (50, 52), (90, 100))
        assert plan_of(load(data, ALL)) == ((0, 100),)

    def test_single_keyframe_is_decoded_straight_through_up_to_the_last_sample(self) -> None:
        data = make_video(50, keyframe_every=1000)
        assert plan_of(load(data, sampler=Chosen(5, 40))) == ((0, 41),)

    def test_the_same_frame_may_be_sampled_twice(self) -> None:
        decoded = load(CLIP, sampler=Chosen(3, 3, 7)).decode()
        assert decoded.frame_indices == (3, 3, 7)
        np.testing.assert_array_equal(decoded.frames[0], decoded.frames[1])

    def test_frames_that_the_short_way_does_not_give_are_decoded_the_long_way(self, monkeypatch: pytest.MonkeyPatch) -> None:
        plans: list[VideoPlan] = []

        def fill_half(data: bytes, plan: VideoPlan, frames: Any, **options: Any) -> Any:
            plans.append(plan)
            filled = fill_frames(data, plan, frames, **options)
            return filled & plan.is_thorough

        monkeypatch.setattr("inset.media.video.fill_frames", fill_half)
        data = make_video(30, keyframe_every=10)
        decoded = load(data, sampler=Chosen(0, 15, 29)).decode()
        assert [plan.is_thorough for plan in plans] == [False, True]
        np.testing.assert_array_equal(decoded.frames, np.stack(decode_plainly(data))[[0, 15, 29]])

    def test_what_decoding_takes_beside_the_frames_is_announced(self) -> None:
        header = load(CLIP, {"num_frames": 2}).header
        assert header.peak_bytes == header.decoded_bytes + 16 * 64 * 48


class TestFacts:
    @pytest.mark.parametrize("container", ["mp4", "matroska", "webm", "mpegts", "avi", "flv"])
    def test_frames_are_counted_where_the_container_does_not_say(self, container: str) -> None:
        codec = {"webm": "libvpx", "flv": "flv1"}.get(container, "mpeg4")
        header = load(make_video(31, container=container, codec=codec), ALL).header
        assert header.total_num_frames == header.num_frames == 31
        assert header.fps == pytest.approx(30, rel=0.01)
        assert header.duration_seconds == pytest.approx(31 / 30, rel=0.01)

    @pytest.mark.parametrize("num_frames", [1, 2, 3, 7])
    def test_few_and_odd_numbers_of_frames(self, num_frames: int) -> None:
        decoded = load(make_video(num_frames)).decode()
        assert decoded.frames.shape[0] == decoded.total_num_frames == num_frames
        assert decoded.timestamps_seconds == pytest.approx([index / 30 for index in range(num_frames)], abs=1e-3)
        assert decoded.fps > 0

    @pytest.mark.parametrize("container", ["mp4", "matroska", "webm", "mpegts", "avi", "flv"])
    @pytest.mark.parametrize("num_frames", [1, 3])
    def test_one_frame_and_an_odd_number_are_read_from_every_container(self, container: str, num_frames: int) -> None:
        codec = {"webm": "libvpx", "flv": "flv1"}.get(container, "mpeg4")
        ref = load(make_video(num_frames, container=container, codec=codec))
        assert ref.header.num_frames == ref.header.total_num_frames == num_frames
        assert ref.decode().frame_indices == tuple(range(num_frames))
        assert ref.decode().fps > 0
        assert ref.decode().duration_seconds > 0

    @pytest.mark.parametrize("container", ["matroska", "webm"])
    def test_live_recording_without_duration_is_measured(self, container: str) -> None:
        data = make_video(31, container=container, codec="libvpx", container_options={"live": "1"})
        with av.open(io.BytesIO(data)) as plain:
            assert plain.duration is None
        header = load(data, ALL).header
        assert (header.num_frames, header.total_num_frames) == (31, 31)
        assert header.duration_seconds == pytest.approx(31 / 30, rel=0.01)

    def test_fewer_frames_than_asked_gives_all(self) -> None:
        assert load(CLIP, {"num_frames": 1000}).decode().frame_indices == tuple(range(40))

    @pytest.mark.parametrize("container", ["mp4", "matroska"])
    def test_variable_rate_keeps_true_timestamps(self, container: str) -> None:
        times = [0.0, 0.1, 0.2, 1.0, 1.05, 3.0]
        decoded = load(make_video(6, container=container, timestamps_seconds=times), ALL).decode()
        assert decoded.timestamps_seconds == pytest.approx(times, abs=2e-3)
        assert decoded.fps == pytest.approx(5 / 3, rel=0.01)

    @pytest.mark.parametrize("container", ["mp4", "matroska"])
    @pytest.mark.parametrize("rotation", [0, 90, 180, 270])
    def test_rotation_is_known_from_the_header_and_applied(self, container: str, rotation: int) -> None:
        data = make_video(3, container=container, rotation=rotation)
        ref = load(data, ALL)
        turned = rotation % 180 == 90
        assert (ref.header.rotation, ref.header.width, ref.header.height) == (rotation, 48 if turned else 64, 64 if turned else 48)
        assert ref.spec.settings["rotation"] == rotation
        np.testing.assert_array_equal(ref.decode().frames[2], np.rot90(decode_plainly(data)[2], -rotation // 90))

    def test_edit_list_counts_only_what_is_shown(self) -> None:
        data = with_edit_list(make_video(40, keyframe_every=10, container_options={"use_editlist": "1"}), start_seconds=0.5)
        everything = decode_plainly(data)
        ref = load(data, ALL)
        assert 20 <= len(everything) < 30
        assert ref.header.num_frames == len(everything)
        np.testing.assert_array_equal(ref.decode().frames, np.stack(everything))
        assert load(data, sampler=Chosen(0, 19)).decode().frame_indices == (0, 19)

    def test_sampler_sees_what_was_counted(self) -> None:
        sampler = Chosen(0)
        load(make_video(10, fps=10, rotation=90), sampler=sampler)
        facts = sampler.facts[0]
        assert (facts.num_frames, facts.fps, facts.duration_seconds, facts.width, facts.height) == (10, 10.0, 1.0, 48, 64)
        assert facts.timestamps_seconds == pytest.approx([index / 10 for index in range(10)])

    def test_cover_picture_is_no_video(self) -> None:
        with pytest.raises(MediaDecodeError, match="no video track"):
            load(encode_sound_track(make_tone(4000), container="mp4", codec="aac"))

    def test_video_with_sound_is_read(self) -> None:
        assert load(make_video(12, sound=make_tone(6400)), ALL).decode().frames.shape[0] == 12


def with_edit_list(data: bytes, *, start_seconds: float) -> bytes:
    """Changes the first edit of an MP4 so that it begins later."""
    at = data.index(b"elst") + 4
    assert data[at] == 0
    timescale_at = data.index(b"mdhd") + 4 + 12
    timescale = int.from_bytes(data[timescale_at : timescale_at + 4], "big")
    time_at = at + 4 + 4 + 4
    return data[:time_at] + round(start_seconds * timescale).to_bytes(4, "big") + data[time_at + 4 :]


class TestSamplers:
    @pytest.mark.parametrize(
        ("options", "num_frames"),
        [({}, 32), ({"num_frames": 7}, 7), ({"fps": 6}, 8), ({"fps": 6, "max_frames": 3}, 3), ({"fps": 6, "num_frames": 4}, 4)],
    )
    def test_default_samplers_follow_the_options(self, options: Mapping[str, JSON], num_frames: int) -> None:
        assert load(CLIP, options).header.num_frames == num_frames

    def test_a_familys_sampler_names_the_item(self) -> None:
        keys = {load(CLIP, sampler=sampler).key for sampler in (Chosen(1), Chosen(2), Chosen(1), None)}
        assert len(keys) == 3
        assert load(CLIP, sampler=Chosen(1)).spec.settings["sampler"] == "chosen"

    def test_options_of_the_default_samplers_are_unknown_beside_a_familys_own(self) -> None:
        with pytest.raises(InvalidRequestError, match="num_frames"):
            VideoIO({"num_frames": 3}, MediaConfig(), sampler=Chosen(1))

    @pytest.mark.parametrize("indices", [(), (-1,), (40,), (5, 3)])
    def test_a_sampler_that_breaks_its_contract_is_named(self, indices: tuple[int, ...]) -> None:
        with pytest.raises(PluginContractError, match="chosen"):
            load(CLIP, sampler=Chosen(*indices))

    @pytest.mark.parametrize(
        ("options", "message"),
        [
            ({"num_frames": 0}, "num_frames"),
            ({"num_frames": -2}, "num_frames"),
            ({"num_frames": 2.5}, "num_frames"),
            ({"num_frames": True}, "num_frames"),
            ({"fps": 0}, "fps"),
            ({"fps": "fast"}, "fps"),
            ({"fps": 2**1024 - 1}, "fps must be a number above 0, not 1797"),
            ({"fps": 10**5000}, "fps must be a number above 0, not one of thousands of digits"),
            ({"fps": float("nan")}, "fps"),
            ({"num_frames": 10**5000}, "num_frames must be at least -1 and at most 65536, not one of thousands of digits"),
            ({"num_frames": [10**5000]}, "num_frames must be a whole number, not one of thousands of digits"),
            ({"max_frames": 3}, "max_frames"),
            ({"num_frames": 3, "fps": 1, "max_frames": 2}, "num_frames"),
            ({"image_mode": "RGB"}, "image_mode"),
        ],
    )
    def test_wrong_options_are_named(self, options: Mapping[str, JSON], message: str) -> None:
        with pytest.raises(InvalidRequestError, match=message):
            VideoIO(options, MediaConfig())

    def test_rate_without_end_is_bounded_by_the_most_frames(self) -> None:
        header = load(make_video(40), {"fps": 1e300, "max_frames": 65_536}).header
        assert header.frame_indices == tuple(range(40))
