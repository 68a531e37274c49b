"""Which items somebody meant who gave one, several, or an array of several."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from PIL import Image

from inset.processing.given_items import split_items

PICTURE = Image.new("RGB", (16, 8))
PIXELS = np.zeros((8, 16, 3), np.uint8)
FRAMES = np.zeros((3, 8, 16, 3), np.uint8)
SAMPLES = np.zeros(8, np.float32)
EMBEDS = np.zeros((5, 4), np.float32)


@pytest.mark.parametrize(
    ("name", "given", "num_items"),
    [
        ("image", PICTURE, 1),
        ("image", [PICTURE, PIXELS], 2),
        ("image", (PICTURE, PICTURE), 2),
        ("image", PIXELS, 1),
        ("image", FRAMES, 3),
        ("image", None, 1),
        ("image", b"encoded", 1),
        ("video", [PICTURE, PICTURE, PICTURE], 1),
        ("video", (PICTURE, PICTURE, PICTURE), 1),
        ("video", [PIXELS, PIXELS], 1),
        ("video", ([PICTURE, PICTURE], {"fps": 2.0}), 1),
        ("video", [[PICTURE], [PICTURE, PICTURE]], 2),
        ("video", FRAMES, 1),
        ("video", [FRAMES, FRAMES], 2),
        ("video", np.stack([FRAMES, FRAMES]), 2),
        ("video", (FRAMES, {"fps": 2.0}), 1),
        ("video", [(FRAMES, {"fps": 2.0}), FRAMES], 2),
        ("video", [EMBEDS, EMBEDS], 2),
        ("video", [], 0),
        ("audio", (SAMPLES, 16000), 1),
        ("audio", (SAMPLES, np.int64(16000)), 1),
        ("audio", [(SAMPLES, 16000.0), (SAMPLES, np.float32(8000))], 2),
        ("image_embeds", EMBEDS, 1),
        ("image_embeds", np.stack([EMBEDS, EMBEDS]), 2),
        ("image_embeds", [np.stack([EMBEDS, EMBEDS]), EMBEDS], 3),
        ("image_embeds", {"image_embeds": EMBEDS}, 1),
        ("no modality", FRAMES, 1),
    ],
)
def test_items_are_counted_as_they_are_meant(name: str, given: Any, num_items: int) -> None:
    assert len(split_items(name, given)) == num_items
