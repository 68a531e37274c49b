"""Tests of resizing, cropping and padding."""

from __future__ import annotations

import numpy as np
import pytest

from inset.errors import InvalidRequestError
from inset.processing.resize import center_crop, check_resample, pad_to_square, resize_pixels, shortest_edge_size


def ramp(height: int, width: int) -> np.ndarray[tuple[int, ...], np.dtype[np.uint8]]:
    return np.arange(height * width * 3, dtype=np.uint32).astype(np.uint8).reshape(height, width, 3)


@pytest.mark.parametrize("resample", [0, 2, 3])
def test_resized_pixels_are_contiguous_and_of_the_size_asked_for(resample: int) -> None:
    pixels = ramp(30, 50)
    resized = resize_pixels(pixels, (17, 81), resample=resample)
    assert (resized.shape, resized.flags.c_contiguous, resized.dtype.name) == ((17, 81, 3), True, "uint8")
    assert resize_pixels(pixels, (30, 50), resample=resample) is pixels


def test_read_only_and_strided_pixels_are_resized_alike() -> None:
    pixels = ramp(30, 50)
    frozen = pixels.copy()
    frozen.flags.writeable = False
    expected = resize_pixels(pixels, (20, 20))
    np.testing.assert_array_equal(resize_pixels(frozen, (20, 20)), expected)
    np.testing.assert_array_equal(resize_pixels(np.asfortranarray(pixels), (20, 20)), expected)


def test_frames_are_resized_together_as_one_by_one() -> None:
    frames = np.stack([ramp(30, 50), ramp(30, 50)[::-1]])
    resized = resize_pixels(frames, (20, 24))
    for index in range(2):
        np.testing.assert_array_equal(resized[index], resize_pixels(np.ascontiguousarray(frames[index]), (20, 24)))


@pytest.mark.parametrize(
    ("source", "edge", "longest", "expected"),
    [
        ((480, 640), 336, None, (336, 448)),
        ((640, 480), 336, None, (448, 336)),
        ((1, 4000), 336, None, (336, 1_344_000)),
        ((337, 1009), 336, None, (336, 1006)),
        ((336, 336), 336, None, (336, 336)),
        ((100, 1000), 336, 672, (67, 672)),
        ((1000, 100), 336, 672, (672, 67)),
    ],
)
def test_the_shorter_side_goes_to_the_edge(source: tuple[int, int], edge: int, longest: int | None, expected: tuple[int, int]) -> None:
    assert shortest_edge_size(source, edge, longest) == expected


def test_the_sizes_equal_those_of_transformers() -> None:
    from transformers.image_transforms import get_resize_output_image_size, get_size_with_aspect_ratio

    rng = np.random.default_rng(0)
    for height, width, edge in rng.integers(1, 900, (2000, 3)).tolist():
        longest = edge * 2
        shape = np.zeros((height, width, 1), np.uint8)
        plain = get_resize_output_image_size(shape, edge, default_to_square=False, input_data_format="channels_last")
        assert shortest_edge_size((height, width), edge) == tuple(plain)
        assert shortest_edge_size((height, width), edge, longest) == get_size_with_aspect_ratio((height, width), edge, longest)


@pytest.mark.parametrize(
    ("size", "top", "left"),
    [((4, 6), 0, 0), ((2, 2), 1, 2), ((3, 3), 0, 1), ((8, 10), -2, -2), ((7, 9), -1, -1), ((2, 9), 1, -1)],
)
def test_a_crop_takes_the_middle_and_black_outside(size: tuple[int, int], top: int, left: int) -> None:
    pixels = ramp(4, 6) | np.uint8(1)
    padded = np.zeros((20, 22, 3), np.uint8)
    padded[8:12, 8:14] = pixels
    expected = padded[8 + top : 8 + top + size[0], 8 + left : 8 + left + size[1]]
    np.testing.assert_array_equal(center_crop(pixels, size), expected)


def test_padding_puts_the_image_in_the_middle_of_a_square() -> None:
    pixels = ramp(2, 5)
    square = pad_to_square(pixels, (9, 8, 7))
    assert square.shape == (5, 5, 3)
    np.testing.assert_array_equal(square[1:3], pixels)
    assert square[0, 0].tolist() == square[4, 4].tolist() == [9, 8, 7]
    np.testing.assert_array_equal(pad_to_square(pixels.transpose(1, 0, 2), (9, 8, 7))[:, 1:3], pixels.transpose(1, 0, 2))
    assert pad_to_square(square, (0, 0, 0)) is square


@pytest.mark.parametrize("resample", [1, 4, True, "3", 3.5, None, [3], {}, {"a": 1}])
def test_a_filter_that_is_not_there_is_refused(resample: object) -> None:
    with pytest.raises(InvalidRequestError, match="resample must be"):
        check_resample(resample)
