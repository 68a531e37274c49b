"""A list of pictures as a video."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

import numpy as np
import pytest

from inset.config import MediaConfig
from inset.errors import MediaDecodeError, TooLargeError
from inset.identity import JSON
from inset.media.decoded import VideoFrames
from inset.media.frame_list import FRAME_LIST_MAGIC, pack_frames, unpack_frames
from inset.media.header import MediaHeader
from inset.media.ref import MediaRef
from inset.media.sampling import VideoSampler
from inset.media.video import VideoIO
from inset.testing.conformance.media_io import MediaIOConformance
from inset.testing.sample_images import encode_image, make_pixels


def load(
    data: bytes, options: Mapping[str, JSON] | None = None, *, config: MediaConfig | None = None, sampler: VideoSampler | None = None
) -> MediaRef[VideoFrames]:
    return VideoIO(options or {}, config or MediaConfig(), sampler=sampler).load_bytes_ref(data)


class TestFrameListConformance(MediaIOConformance):
    options: ClassVar[Mapping[str, JSON]] = {"num_frames": 3}
    other_options: ClassVar[Mapping[str, JSON]] = {"num_frames": 5}
    PICTURES: ClassVar[list[np.ndarray[Any, Any]]] = [np.roll(make_pixels(40, 30), 5 * index, axis=1) for index in range(4)]

    def make_io(self, options: Mapping[str, JSON], config: MediaConfig) -> VideoIO:
        return VideoIO(options, config)

    def make_media(self) -> bytes:
        return pack_frames([encode_image(picture, "PNG") for picture in self.PICTURES])

    def make_bomb(self) -> bytes:
        return pack_frames([encode_image(make_pixels(400, 400), "PNG")] * 3)

    def array_of(self, decoded: VideoFrames) -> np.ndarray[Any, Any]:
        return decoded.frames

    def check_decoded(self, decoded: VideoFrames, header: MediaHeader) -> None:
        assert (header.width, header.height, header.num_frames, header.fps, header.duration_seconds) == (40, 30, 4, 1.0, 4.0)
        assert (decoded.frame_indices, decoded.timestamps_seconds) == ((0, 1, 2, 3), (0.0, 1.0, 2.0, 3.0))
        np.testing.assert_array_equal(decoded.frames, np.stack(self.PICTURES))


class TestFrameLists:
    def test_frames_of_different_sizes_are_refused_with_their_place(self) -> None:
        ref = load(pack_frames([encode_image(make_pixels(*size), "JPEG") for size in ((40, 30), (40, 30), (30, 40))]))
        with pytest.raises(MediaDecodeError, match="Frame 2"):
            ref.decode()

    def test_empty_list_is_refused(self) -> None:
        with pytest.raises(MediaDecodeError, match="no frames"):
            load(pack_frames([]))

    def test_bytes_behind_the_last_frame_that_are_all_zero_are_skipped(self) -> None:
        for padding in (0, 1, 7, 8, 9, 1000):
            assert unpack_frames(pack_frames([b"a", b"bc"]) + bytes(padding)) == [b"a", b"bc"]

    @pytest.mark.parametrize("payload", [bytes(8_000_000) + b"\1" * 9, bytes(8) + (1).to_bytes(8, "big") + b"x"])
    def test_first_empty_frame_ends_the_reading(self, payload: bytes) -> None:
        """Frame 0 is blamed, so nothing behind it was read as frames, however many more empty ones there are."""
        with pytest.raises(MediaDecodeError, match="Frame 0 of the frame list is empty"):
            load(FRAME_LIST_MAGIC + payload)

    def test_frames_without_number_are_too_many(self) -> None:
        frame = (1).to_bytes(8, "big") + b"x"
        assert len(unpack_frames(FRAME_LIST_MAGIC + frame * 65_536)) == 65_536
        with pytest.raises(TooLargeError, match="more than 65,536 frames"):
            load(FRAME_LIST_MAGIC + frame * 65_537)

    def test_damaged_frame_is_an_error_of_the_video(self) -> None:
        whole = encode_image(make_pixels(200, 200), "JPEG")
        ref = load(pack_frames([whole, whole[:-500]]))
        with pytest.raises(MediaDecodeError, match="Frame 1 of the frame list") as caught:
            ref.decode()
        assert (caught.value.stage, caught.value.modality) == ("decode", "video")

    def test_frames_that_are_no_images_are_refused(self) -> None:
        with pytest.raises(MediaDecodeError, match="Frame 0 of the frame list") as caught:
            load(pack_frames([b"not an image"]))
        assert (caught.value.stage, caught.value.modality, caught.value.code) == ("probe", "video", "unsupported_image_format")

    def test_decoding_has_a_time_limit(self) -> None:
        io_ = VideoIO({}, MediaConfig(max_video_decode_seconds=1e-9))
        ref = io_.load_bytes_ref(pack_frames([encode_image(make_pixels(40, 30), "JPEG")] * 3))
        with pytest.raises(MediaDecodeError, match="Frame 0 of the frame list") as caught:
            ref.decode()
        assert (caught.value.code, caught.value.stage, caught.value.modality) == ("media_decode_timeout", "decode", "video")

    def test_frames_over_the_pixel_cap_are_too_large_and_not_damaged(self) -> None:
        with pytest.raises(TooLargeError, match="Frame 0 of the frame list"):
            load(pack_frames([encode_image(make_pixels(40, 30), "JPEG")]), config=MediaConfig(max_image_pixels=100))
