"""What callers hand in becomes a prompt with its media, or is refused."""

from __future__ import annotations

from typing import Any

import pytest

from inset.engine.prompts import read_prompt
from inset.errors import InvalidRequestError


@pytest.mark.parametrize("options", [{"movie": {"fps": 1}}, {"video": 5}, {"video": [{"fps": 1}]}, {1: {}}])
def test_decode_options_for_what_is_no_modality_or_in_no_object_are_refused(options: dict[Any, Any]) -> None:
    with pytest.raises(InvalidRequestError, match="media_io_kwargs") as caught:
        read_prompt({"prompt": "x", "media_io_kwargs": options})
    assert caught.value.parameter == "media_io_kwargs"
