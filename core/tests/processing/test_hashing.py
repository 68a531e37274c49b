"""Tests of naming items by their content."""

from __future__ import annotations

import io
import os
import subprocess
import sys
from typing import Any

import numpy as np
import pytest
from PIL import Image

from inset.errors import InvalidRequestError
from inset.identity import DecodeSpec
from inset.media.decoded import AudioSamples
from inset.media.header import MediaHeader
from inset.media.ref import MediaRef
from inset.processing.given_media import image_pixels, video_frames
from inset.processing.hashing import MultiModalHasher


def fail() -> Any:
    raise AssertionError("hashing decoded the media")


def test_a_reference_gives_its_key_and_is_not_decoded() -> None:
    ref: MediaRef[Any] = MediaRef(b"k" * 32, DecodeSpec({}), data=b"x", header=MediaHeader(modality="image"), load=fail)
    assert MultiModalHasher.hash_item(ref) == b"k" * 32
    assert MultiModalHasher.hash_item([ref]) != MultiModalHasher.hash_item([b"k" * 32])


def palette_image(colour: int) -> Image.Image:
    image = Image.new("P", (4, 2), 0)
    image.putpalette([colour, 0, 0] * 256)
    return image


def transparent(what: int | bytes) -> Image.Image:
    image = palette_image(3)
    image.info["transparency"] = what
    return image


def transparent_in(mode: str, colour: int | tuple[int, ...]) -> Image.Image:
    image = Image.new(mode, (4, 2), 0)
    image.info["transparency"] = colour
    return image


def palette_of(mode: str, *entry: int, image_mode: str = "P") -> Image.Image:
    image = Image.new("P", (4, 2), 0)
    image.putpalette(list(entry) * 256, mode)
    return image if image_mode == "P" else image.convert(image_mode)


def read_gif(image: Image.Image) -> Image.Image:
    buffer = io.BytesIO()
    image.save(buffer, "GIF", transparency=0)
    return Image.open(buffer)


DIFFERENT: list[object] = [
    Image.new("L", (4, 2), 7),
    Image.new("L", (2, 4), 7),
    Image.new("L", (8, 1), 7),
    Image.new("RGB", (4, 2), (7, 7, 7)),
    Image.new("LA", (4, 2), (7, 255)),
    palette_image(1),
    palette_image(2),
    transparent(0),
    transparent(1),
    transparent(b"\x80"),
    transparent(b"\x81"),
    palette_of("RGBA", 9, 0, 0, 255),
    palette_of("RGBA", 9, 0, 0, 64),
    palette_of("RGB", 9, 0, 0),
    palette_of("RGB", 9, 0, 0, image_mode="PA"),
    palette_of("RGB", 8, 0, 0, image_mode="PA"),
    Image.new("RGBA", (4, 2), (200, 10, 10, 255)).quantize(2),
    Image.new("RGBA", (4, 2), (200, 10, 10, 64)).quantize(2),
    read_gif(palette_image(4)),
    transparent_in("RGB", (0, 0, 0)),
    transparent_in("RGB", (0, 0, 1)),
    transparent_in("L", 0),
    transparent_in("L", 1),
    transparent_in("I;16", 0),
    Image.new("I;16", (4, 2), 0),
    Image.new("I;16B", (4, 2), 0),
    Image.new("I", (4, 2), 0),
    Image.new("F", (4, 2), 0),
    Image.new("La", (4, 2), (7, 255)),
    Image.new("RGBX", (4, 2), (7, 7, 7, 7)),
    Image.new("RGBa", (4, 2), (7, 7, 7, 7)),
    Image.new("RGBA", (4, 2), (7, 7, 7, 7)),
    Image.new("CMYK", (4, 2), (7, 7, 7, 7)),
    Image.new("YCbCr", (4, 2), (7, 7, 7)),
    Image.new("HSV", (4, 2), (7, 7, 7)),
    Image.new("1", (4, 2), 0),
    np.full((2, 4), 7, np.uint8),
    np.full((4, 2), 7, np.uint8),
    np.full((2, 4), 7, np.int8),
    np.full((2, 2), 7, np.uint16),
    np.zeros(3, np.float32),
    np.zeros(3, np.float64),
    b"\x07" * 8,
    b"",
    "\x07" * 8,
    "7",
    7,
    7.0,
    True,
    1,
    None,
    [],
    [7],
    [[7]],
    [7, 7],
    [[7], [7]],
    [[7, 7]],
    ["a", "b"],
    ["ab"],
    {"a": "b"},
    {"a": None},
    {"b": "a"},
    [["a", "b"]],
    video_frames(np.zeros((2, 4, 4, 3), np.uint8)),
    video_frames((np.zeros((2, 4, 4, 3), np.uint8), {"fps": 2.0})),
    video_frames(np.zeros((4, 2, 4, 3), np.uint8)),
    np.zeros((2, 4, 4, 3), np.uint8),
    AudioSamples(samples=np.zeros((1, 8), np.float32), sampling_rate=8000),
    AudioSamples(samples=np.zeros((1, 8), np.float32), sampling_rate=16000),
    AudioSamples(samples=np.zeros((2, 4), np.float32), sampling_rate=16000),
]


def test_items_that_differ_in_anything_have_different_names() -> None:
    names = [MultiModalHasher.hash_item(item) for item in DIFFERENT]
    assert len(set(names)) == len(names)


def test_a_conversion_does_not_change_the_name_of_a_palette_image() -> None:
    image = transparent(b"\x80")  # Pillow writes the alpha into the palette while it converts
    before = MultiModalHasher.hash_item(image)
    image_pixels(image)
    assert MultiModalHasher.hash_item(image) == before


def test_alpha_that_a_conversion_left_in_the_palette_is_part_of_the_name() -> None:
    image, fresh = transparent(b"\x80\x80"), transparent(b"")
    image_pixels(image)
    image.info["transparency"] = b""
    shows_the_same = np.array_equal(image_pixels(image), image_pixels(fresh))
    assert (MultiModalHasher.hash_item(image) == MultiModalHasher.hash_item(fresh)) is shows_the_same


def test_equal_content_has_one_name_whatever_its_memory_looks_like() -> None:
    image = np.arange(24, dtype=np.uint8).reshape(2, 4, 3)
    strided = np.asfortranarray(image)
    assert MultiModalHasher.hash_item(strided) == MultiModalHasher.hash_item(image)
    assert MultiModalHasher.hash_item(bytearray(b"ab")) == MultiModalHasher.hash_item(b"ab")
    assert MultiModalHasher.hash_item({"a": 1, "b": 2}) == MultiModalHasher.hash_item({"b": 2, "a": 1})


def test_tensors_are_named_as_arrays_and_keep_bfloat16_apart() -> None:
    import torch

    values = torch.ones(2, 3)
    assert MultiModalHasher.hash_item(values) == MultiModalHasher.hash_item(values.numpy())
    assert MultiModalHasher.hash_item(values.bfloat16()) != MultiModalHasher.hash_item(values)


def test_a_long_equal_prefix_does_not_make_two_items_one() -> None:
    first = np.zeros((500, 500, 3), np.uint8)
    second = first.copy()
    second[-1, -1, -1] = 1
    assert MultiModalHasher.hash_item(first) != MultiModalHasher.hash_item(second)


@pytest.mark.parametrize("item", [object(), {1, 2}, [object()], {"a": object()}, np.array([object()])])
def test_an_unknown_type_is_an_error_that_says_what_is_accepted(item: object) -> None:
    with pytest.raises(InvalidRequestError, match="Accepted are a MediaRef, a PIL image"):
        MultiModalHasher.hash_item(item)


def test_names_are_the_same_in_another_process_with_another_hash_seed() -> None:
    code = (
        "import numpy as np; from inset.processing.hashing import MultiModalHasher as H; "
        "print(H.hash_item({'b': [1, 'x', None], 'a': np.arange(5), 'c': 0.1}).hex())"
    )
    outputs = {
        subprocess.run(
            [sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=60, env={**os.environ, "PYTHONHASHSEED": seed}
        ).stdout.strip()
        for seed in ("1", "2")
    }
    assert outputs == {MultiModalHasher.hash_item({"a": np.arange(5), "b": [1, "x", None], "c": 0.1}).hex()}
