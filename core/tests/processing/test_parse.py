"""Tests of parsing media into items."""

from __future__ import annotations

from collections.abc import Callable
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from PIL import Image

from inset.config import MediaConfig
from inset.errors import InvalidRequestError, MediaDecodeError
from inset.inputs import MediaIOFactory
from inset.media.decoded import AudioSamples, VideoFrames
from inset.media.io import MediaIO
from inset.media.ref import MediaRef
from inset.processing.embedding_items import DictEmbeddingItems, EmbeddingItems
from inset.processing.items import AudioProcessorItems, ImageProcessorItems, VideoProcessorItems
from inset.processing.parse import ParseOptions, parse_mm_data

MakePng = Callable[..., bytes]


@pytest.fixture
def image_decoder(image_io: MediaIOFactory) -> MediaIO[Any]:
    decoder: MediaIO[Any] = image_io({}, MediaConfig())
    return decoder


@pytest.fixture
def options(image_decoder: MediaIO[Any]) -> ParseOptions:
    return ParseOptions(get_media_io=lambda modality: image_decoder, embed_size=4)


def frames(num_frames: int = 3, height: int = 8, width: int = 16) -> np.ndarray[Any, Any]:
    return np.arange(num_frames * height * width * 3, dtype=np.uint32).astype(np.uint8).reshape(num_frames, height, width, 3)


def images_of(mm_data: object, options: ParseOptions) -> ImageProcessorItems:
    items = parse_mm_data({"image": mm_data}, options)["image"]
    assert isinstance(items, ImageProcessorItems)
    return items


def videos_of(mm_data: object, options: ParseOptions) -> VideoProcessorItems:
    items = parse_mm_data({"video": mm_data}, options)["video"]
    assert isinstance(items, VideoProcessorItems)
    return items


def test_fetched_images_are_forked_and_not_decoded(image_decoder: MediaIO[Any], options: ParseOptions, png: MakePng, work: Any) -> None:
    ref = image_decoder.load_bytes_ref(png(40, 20))
    items = images_of([ref], options)
    raw = items.get_raw(0)
    assert isinstance(raw, MediaRef)
    assert raw is not ref
    assert raw.key == ref.key
    assert items.get_image_size(0) == (20, 40)
    assert work.num_decodes == 0
    decoded = items.get(0)
    assert isinstance(decoded, np.ndarray)
    assert decoded.shape == (20, 40, 3)
    items.get(0)
    assert work.num_decodes == 1
    items.release()
    assert ref.data


def test_encoded_bytes_become_references(options: ParseOptions, png: MakePng) -> None:
    items = images_of(png(), options)
    assert isinstance(items.get_raw(0), MediaRef)


def test_bytes_that_are_no_image_are_refused_when_they_are_probed(options: ParseOptions) -> None:
    with pytest.raises(MediaDecodeError):
        images_of(b"nothing", options)


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        (Image.new("L", (3, 2), 7), (7, 7, 7)),
        (Image.new("RGBA", (3, 2), (9, 9, 9, 0)), (255, 255, 255)),
        (Image.new("P", (3, 2), 0), (0, 0, 0)),
        (np.full((2, 3), 5, np.uint8), (5, 5, 5)),
        (np.full((2, 3, 1), 5, np.uint8), (5, 5, 5)),
        (np.full((2, 3, 3), 6, np.uint8), (6, 6, 6)),
        (np.full((3, 2, 3), 6, np.uint8).transpose(2, 0, 1)[:, :2], (6, 6, 6)),
        (np.full((2, 3, 4), 255, np.uint8), (255, 255, 255)),
    ],
)
def test_images_of_every_form_decode_to_rgb(options: ParseOptions, given: object, expected: tuple[int, int, int]) -> None:
    items = images_of([given], options)
    assert items.get_raw(0) is given
    pixels = items.decode(0)
    assert pixels.dtype == np.uint8
    assert tuple(pixels[0, 0]) == expected
    assert items.get_image_size(0) == pixels.shape[:2]


def test_tensors_are_images_and_a_batch_is_several(options: ParseOptions) -> None:
    import torch

    batch = torch.arange(2 * 3 * 4 * 5, dtype=torch.uint8).reshape(2, 3, 4, 5)
    items = images_of(batch, options)
    assert len(items) == 2
    np.testing.assert_array_equal(items.decode(1), batch[1].permute(1, 2, 0).numpy())


@pytest.mark.parametrize(
    ("modality", "given", "message"),
    [
        ("image", [np.zeros((4, 4, 3), np.int64)], "must be uint8"),
        ("image", [np.zeros((5, 5, 7), np.uint8)], "1, 3 or 4 channels"),
        ("image", ["http://host/picture.png"], "A str is not an image"),
        ("image", [object()], "A object is not an image"),
        ("image", [np.zeros((0, 4, 3), np.uint8)], "nothing to show"),
        ("video", [np.zeros((2, 4, 4, 5), np.uint8)], "Frames must be"),
        ("video", ["film.mp4"], "A str is not a video"),
        ("audio", [np.zeros(4, np.int16)], "Sound must be"),
        ("audio", [(np.full(4, np.nan), 16000)], "every sample must be finite"),
        ("audio", [(np.zeros(0, np.float32), 16000)], "at least one sample"),
        ("audio", [(np.zeros(8, np.float32), 0)], "sampling rate must be a finite number above 0, not 0"),
        ("audio", [(np.zeros(8, np.float32), None)], "sampling rate must be a finite number above 0, not None"),
        ("audio", [(np.zeros(8, np.float32), float("nan"))], "sampling rate must be a finite number"),
        ("audio", [(np.zeros(8, np.float32), 10**400)], "sampling rate must be a finite number"),
        ("audio", [(np.zeros(8, np.float32), 0.5)], "sampling rate must be a whole number"),
        ("audio", [AudioSamples(samples=np.zeros((1, 8), np.float32), sampling_rate=0)], "sampling rate must be"),
        ("video", [(frames(), {"fps": -1})], "fps must be a finite number above 0, not -1"),
        ("video", [(frames(), {"fps": "x"})], "fps must be a finite number above 0, not 'x'"),
        ("video", [(frames(), {"fps": True})], "fps must be"),
        ("video", [(frames(), {"fps": 0})], "fps must be"),
        ("video", [(frames(), {"fps": float("inf")})], "fps must be"),
        ("video", [(frames(), {"duration": "long"})], "duration must be"),
        ("video", [(frames(), {"total_num_frames": 0})], "total_num_frames must be"),
        ("video", [(frames(), {"total_num_frames": 2})], "total_num_frames is 2, and there is a frame at position 2"),
        ("video", [(frames(), {"frames_indices": np.arange(2)})], "3 frames, and its metadata names 2"),
        ("video", [(frames(), {"frames_indices": [2, 1, 0]})], "ascending positions"),
        ("video", [(frames(), {"frames_indices": [-1, 0, 1]})], "ascending positions"),
        ("video", [(frames(), {"frames_indices": ["a", "b", "c"]})], "ascending positions"),
        ("video", [(frames(), {"frames_indices": 3})], "its metadata names 0"),
    ],
)
def test_what_is_not_media_is_refused_with_its_place(options: ParseOptions, modality: str, given: object, message: str) -> None:
    with pytest.raises(InvalidRequestError, match=message) as caught:
        parse_mm_data({modality: given}, options)
    assert (caught.value.modality, caught.value.item_index) == (modality, 0)


def test_a_modality_that_does_not_exist_is_refused(options: ParseOptions) -> None:
    with pytest.raises(InvalidRequestError, match="Unknown modality 'smell'"):
        parse_mm_data({"smell": [1]}, options)


def test_a_reference_of_another_modality_is_refused(image_decoder: MediaIO[Any], options: ParseOptions, png: MakePng) -> None:
    with pytest.raises(InvalidRequestError, match="is image, and was given as video"):
        parse_mm_data({"video": [image_decoder.load_bytes_ref(png())]}, options)


def test_selections_keep_items_class_and_original_positions(image_decoder: MediaIO[Any], options: ParseOptions, png: MakePng) -> None:
    refs = [image_decoder.load_bytes_ref(png(8 + 8 * index)) for index in range(5)]
    items = images_of(refs, options)
    chosen = items.select([4, 1, 3]).select([2, 0])
    assert isinstance(chosen, ImageProcessorItems)
    assert [chosen.get_original_index(index) for index in range(2)] == [3, 4]
    assert chosen.get_raw(0) is items.get_raw(3)
    assert len(items) == 5


def test_videos_show_frames_alone_or_with_metadata(options: ParseOptions) -> None:
    metadata = {"fps": 2.0, "total_num_frames": 30, "frames_indices": [0, 10, 20], "duration": 15.0}
    plain = videos_of([(frames(), metadata)], options)
    np.testing.assert_array_equal(plain.get(0), frames())
    detailed = videos_of(
        [(frames(), metadata), frames(2)], ParseOptions(get_media_io=options.get_media_io, embed_size=4, video_needs_metadata=True)
    )
    shown = detailed.get(0)
    assert isinstance(shown, tuple)
    np.testing.assert_array_equal(shown[0], frames())
    assert shown[1] == {**metadata, "height": 8, "width": 16}
    assert detailed.get_num_frames(1) == 2
    assert detailed.get_frame_size(1) == (8, 16)
    chosen = detailed.select([1])
    np.testing.assert_array_equal(chosen.get_frames(0), frames(2))
    assert [entry["total_num_frames"] for entry in detailed.metadata] == [30, 2]
    assert chosen.get_metadata(0)["frames_indices"] == [0, 1]


@pytest.mark.parametrize(
    "metadata",
    [
        {"fps": np.float32(2), "total_num_frames": np.int64(30), "frames_indices": np.array([0, 10, 20]), "duration": None},
        {"fps": Fraction(2), "total_num_frames": 30.0, "frames_indices": (0, np.int32(10), 20)},
    ],
)
def test_metadata_may_be_any_kind_of_number_or_left_out(options: ParseOptions, metadata: dict[str, Any]) -> None:
    shown = videos_of([(frames(), metadata)], options).get_metadata(0)
    assert shown == {"fps": 2.0, "total_num_frames": 30, "frames_indices": [0, 10, 20], "duration": 15.0, "height": 8, "width": 16}


def test_the_metadata_of_one_video_leaves_its_siblings_undecoded(options: ParseOptions, image_decoder: MediaIO[Any]) -> None:
    from inset.identity import DecodeSpec
    from inset.media.header import MediaHeader

    def make(index: int) -> MediaRef[VideoFrames]:
        header = MediaHeader(modality="video", width=16, height=8, num_frames=3)
        video = videos_of([frames()], options).decode(0)
        return MediaRef(bytes([index]) * 32, DecodeSpec({}), data=b"x", header=header, load=lambda: video)

    items = videos_of([make(0), make(1)], options)
    assert items.get_metadata(1)["fps"] == 24.0
    raw = [items.get_raw(index) for index in range(2)]
    assert [isinstance(ref, MediaRef) and ref.is_decoded for ref in raw] == [False, True]


def test_a_list_of_images_is_one_video(options: ParseOptions) -> None:
    items = videos_of([Image.new("RGB", (16, 8), (index, 0, 0)) for index in range(4)], options)
    assert len(items) == 1
    assert items.get_frames(0).shape == (4, 8, 16, 3)
    assert items.get_header(0).num_frames == 4
    with pytest.raises(InvalidRequestError, match="one size"):
        videos_of([[Image.new("RGB", (16, 8)), Image.new("RGB", (8, 8))]], options)
    with pytest.raises(InvalidRequestError, match="its metadata names 1"):
        videos_of([(frames(), {"frames_indices": [4]})], options)


def test_sound_is_samples_with_their_rate(options: ParseOptions) -> None:
    items = parse_mm_data({"audio": (np.zeros(800, np.float64), np.int64(16000))}, options)["audio"]
    assert isinstance(items, AudioProcessorItems)
    assert len(items) == 1
    decoded = items.decode(0)
    assert isinstance(decoded, AudioSamples)
    assert decoded.samples.dtype == np.float32
    assert (decoded.samples.shape, decoded.sampling_rate) == ((1, 800), 16000)
    assert items.get_audio_length(0) == 800
    assert items.get_header(0).duration_seconds == 0.05


def embeds(num_embeds: int, size: int = 4) -> np.ndarray[Any, Any]:
    return np.arange(num_embeds * size, dtype=np.float32).reshape(num_embeds, size)


@pytest.mark.parametrize("name", ["image", "image_embeds"])
@pytest.mark.parametrize("given", [[embeds(2), embeds(3)], np.stack([embeds(2), embeds(2)]), [np.stack([embeds(2), embeds(2)])]])
def test_embeddings_pass_instead_of_media(options: ParseOptions, name: str, given: object) -> None:
    items = parse_mm_data({name: given}, options)["image"]
    assert isinstance(items, EmbeddingItems)
    assert len(items) == 2
    np.testing.assert_array_equal(items.get(0), embeds(2))
    assert items.get_raw(1) is items.get(1)
    assert items.get_fields(0) == {}


@pytest.mark.parametrize("shape", [(30, 40, 3), (3, 30, 40), (6, 9, 3)])
@pytest.mark.parametrize("is_alone", [True, False])
def test_floats_in_the_form_of_a_picture_are_refused_as_one(options: ParseOptions, shape: tuple[int, ...], *, is_alone: bool) -> None:
    picture = np.zeros(shape, np.float32)
    with pytest.raises(InvalidRequestError, match="An image array must be uint8") as caught:
        parse_mm_data({"image": picture if is_alone else [np.zeros((2, 2, 3), np.uint8), picture]}, options)
    assert caught.value.item_index == (0 if is_alone else 1)


@pytest.mark.parametrize("shape", [(3, 2, 4), (1, 2, 4), (2, 4), (4, 4), (3, 4)])
def test_floats_as_wide_as_an_embedding_are_embeddings_whatever_else_they_could_be(options: ParseOptions, shape: tuple[int, ...]) -> None:
    items = parse_mm_data({"image": np.zeros(shape, np.float32)}, options)["image"]
    assert isinstance(items, EmbeddingItems)
    assert len(items) == (shape[0] if len(shape) == 3 else 1)


@pytest.mark.parametrize("shape", [(2, 5), (1, 2, 5), (2, 2, 5)])
def test_embeddings_of_another_width_are_refused_with_the_right_one(options: ParseOptions, shape: tuple[int, ...]) -> None:
    with pytest.raises(InvalidRequestError, match=r"must be \(num_embeds, 4\)"):
        parse_mm_data({"image": np.zeros(shape, np.float32)}, options)


def test_bfloat16_embeddings_become_float32(options: ParseOptions) -> None:
    import torch

    items = parse_mm_data({"image_embeds": torch.ones(3, 4, dtype=torch.bfloat16)}, options)["image"]
    assert isinstance(items, EmbeddingItems)
    assert items.get(0).dtype == np.float32


def test_fields_beside_embeddings_are_selected_together(options: ParseOptions) -> None:
    given = {"image_embeds": [embeds(2), embeds(6)], "image_grid_thw": np.array([[1, 1, 2], [1, 2, 3]])}
    items = parse_mm_data({"image": given}, options)["image"]
    assert isinstance(items, DictEmbeddingItems)
    chosen = items.select([1])
    np.testing.assert_array_equal(chosen.get_embeds(0), embeds(6))
    assert chosen.get_fields(0)["image_grid_thw"].tolist() == [1, 2, 3]
    assert chosen.get_original_index(0) == 1


@pytest.mark.parametrize("grid", [[1, 2, 3], [[1, 2, 3]], np.array([1, 2, 3]), [np.array([1, 2, 3])]])
def test_fields_may_come_item_by_item(options: ParseOptions, grid: object) -> None:
    given = [{"image_embeds": embeds(2), "image_grid_thw": [1, 1, 2]}, {"image_embeds": embeds(6)[None], "image_grid_thw": grid}]
    items = parse_mm_data({"image": given}, options)["image"]
    assert isinstance(items, DictEmbeddingItems)
    assert [items.get_fields(index)["image_grid_thw"].tolist() for index in range(2)] == [[1, 1, 2], [1, 2, 3]]
    np.testing.assert_array_equal(items.get_embeds(1), embeds(6))


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ([embeds(2, 5)], r"must be \(num_embeds, 4\)"),
        ([np.zeros((2, 4), np.uint8)], "floating-point"),
        ([np.full((2, 4), np.inf)], "not finite"),
        ([np.zeros((0, 4), np.float32)], r"must be \(num_embeds, 4\)"),
        ({"image_grid_thw": [1]}, "must have 'image_embeds'"),
        ({"image_embeds": [embeds(2)], "image_grid_thw": np.zeros((2, 3))}, "one row for each of the 1"),
        ({"image_embeds": [embeds(2)], "image_grid_thw": "text"}, "one row for each of the 1"),
        ({"image_embeds": [embeds(2)], "image_grid_thw": [[1], [2, 3]]}, "one row for each of the 1"),
        ({"image_embeds": [embeds(2)], "image_grid_thw": ["a"]}, "one row for each of the 1"),
        ({"image_embeds": [embeds(2)], "image_grid_thw": None}, "one row for each of the 1"),
        ("text", "floating-point"),
        ([{"image_embeds": embeds(2)}, embeds(2)], "Either all image embeddings"),
    ],
)
def test_embeddings_of_another_shape_are_refused(options: ParseOptions, given: object, message: str) -> None:
    with pytest.raises(InvalidRequestError, match=message):
        parse_mm_data({"image_embeds": given}, options)


def test_media_and_embeddings_of_one_modality_do_not_mix(options: ParseOptions, png: MakePng) -> None:
    with pytest.raises(InvalidRequestError, match="not both"):
        parse_mm_data({"image": [png()], "image_embeds": [embeds(2)]}, options)


def test_sound_is_resampled_and_mixed_down_when_it_is_decoded(options: ParseOptions) -> None:
    target = ParseOptions(get_media_io=options.get_media_io, embed_size=4, audio_sampling_rate=8000, mixes_audio_down=True)
    stereo = (np.stack([np.zeros(1600), np.ones(1600)]).astype(np.float32), 16000)
    items = parse_mm_data({"audio": [stereo]}, target)["audio"]
    assert isinstance(items, AudioProcessorItems)
    raw, plain = items.get_raw(0), parse_mm_data({"audio": [stereo]}, options)["audio"].get_raw(0)
    assert isinstance(raw, MediaRef)
    assert isinstance(plain, MediaRef)
    assert not raw.is_decoded
    assert raw.key != plain.key
    assert (items.get_header(0).sampling_rate, items.get_header(0).num_channels) == (8000, 1)
    decoded = items.decode(0)
    assert (decoded.samples.shape, decoded.sampling_rate) == ((1, 800), 8000)
    assert abs(float(decoded.samples[0, 400]) - 0.5) < 0.01
