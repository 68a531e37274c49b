"""The reference page of media decoding names what the code reads and refuses."""

from __future__ import annotations

from pathlib import Path

import pytest

from inset.config import MediaConfig
from inset.errors import InvalidRequestError
from inset.media.container import CONTAINER_FORMATS
from inset.media.frame_list import pack_frames
from inset.media.image_header import IMAGE_FORMATS
from inset.media.io import default_media_io
from inset.options import iter_options

PAGE = (Path(__file__).parents[3] / "docs/reference/media-decoding.md").read_text(encoding="utf-8")


@pytest.mark.parametrize("name", [*IMAGE_FORMATS, *(f"`{name}`" for name in CONTAINER_FORMATS)])
def test_every_format_is_named(name: str) -> None:
    assert name in PAGE


@pytest.mark.parametrize("modality", ["image", "video", "audio"])
def test_every_option_is_named(modality: str) -> None:
    with pytest.raises(InvalidRequestError, match="Known: ") as caught:
        default_media_io(modality, {"no_such_option": 1}, MediaConfig())
    known = caught.value.message.partition("Known: ")[2].rstrip(".").split(", ")
    assert known
    assert all(f"`{name}`" in PAGE for name in known)


def test_every_option_of_the_limits_exists() -> None:
    flags = {option.flag for option in iter_options(MediaConfig)}
    named = {word.strip("`") for word in PAGE.split() if word.startswith("`--")}
    assert named
    assert named <= flags


def test_frame_lists_are_framed_as_the_page_says() -> None:
    magic = bytes.fromhex("89 46 52 41 4d 45 53 0a")
    assert "89 46 52 41 4d 45 53 0a" in PAGE
    assert pack_frames([b"abc", b"d"]) == magic + bytes(7) + b"\3abc" + bytes(7) + b"\1d"
