"""What callers hand in becomes a prompt with its media, or is refused."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from PIL import Image

from inset.engine.prompts import TextPrompt, read_prompt
from inset.errors import InvalidRequestError

PICTURE = Image.new("RGB", (16, 8))
FRAMES = np.zeros((3, 8, 16, 3), np.uint8)


@pytest.mark.parametrize(
    ("modality", "given", "uuids"),
    [
        ("video", [PICTURE, PICTURE, PICTURE], "one"),
        ("video", np.stack([FRAMES, FRAMES]), ["one", "two"]),
        ("image", FRAMES, ["one", None, "three"]),
        ("audio", (np.zeros(8, np.float32), np.int64(16000)), ["one"]),
    ],
)
def test_items_without_a_list_around_them_are_as_many_as_their_uuids(modality: str, given: Any, uuids: Any) -> None:
    prompt = read_prompt({"prompt": "x", "multi_modal_data": {modality: given}, "multi_modal_uuids": {modality: uuids}})
    assert isinstance(prompt, TextPrompt)
    assert len(prompt.multi_modal_data[modality]) == len(prompt.multi_modal_uuids[modality])


@pytest.mark.parametrize("options", [{"movie": {"fps": 1}}, {"video": 5}, {"video": [{"fps": 1}]}, {1: {}}])
def test_decode_options_for_what_is_no_modality_or_in_no_object_are_refused(options: dict[Any, Any]) -> None:
    with pytest.raises(InvalidRequestError, match="media_io_kwargs") as caught:
        read_prompt({"prompt": "x", "media_io_kwargs": options})
    assert caught.value.parameter == "media_io_kwargs"
