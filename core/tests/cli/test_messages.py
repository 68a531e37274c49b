"""Words of the command line become messages."""

from __future__ import annotations

import pytest

from inset.cli.messages import user_message


@pytest.mark.parametrize(
    ("item", "modality", "told"),
    [
        ("shapes.png", None, "image"),
        ("clips/moves.mp4", None, "video"),
        ("https://example.org/speech.wav?token=1", None, "audio"),
        ("no-ending", None, "image"),
        ("notes.txt", None, "image"),
        ("moves.mp4", "image", "image"),
    ],
)
def test_name_of_a_file_tells_its_modality_unless_it_is_said(item: str, modality: str | None, told: str) -> None:
    assert user_message("What is it?", [item], modality)["content"] == [{"type": told, told: item}, {"type": "text", "text": "What is it?"}]
