"""Words of the command line become messages."""

from __future__ import annotations

from pathlib import Path

import pytest

from inset.cli.messages import check_media, user_message
from inset.errors import ConfigError


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


def test_urls_and_files_that_are_there_pass(tmp_path: Path) -> None:
    (tmp_path / "a [1].png").touch()
    check_media([str(tmp_path / "a [1].png"), "http://[::1/never-closed.png", "DATA:,", "zip+https://a.example/b.zip"])


@pytest.mark.parametrize("item", ["missing.png", "//[missing/a.png", "c:\\missing.png", "1:missing.png", ""])
def test_what_is_neither_is_refused(item: str) -> None:
    with pytest.raises(ConfigError, match="There is no file"):
        check_media([item])
