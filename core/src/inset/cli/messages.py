"""Questions about media, from words on the command line to messages."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final
from urllib.parse import urlsplit

from inset.engine.content_parts import ContentPolicy
from inset.errors import ConfigError

__all__ = ["LOCAL_POLICY", "add_media_argument", "check_media", "user_message"]

_MIN_SCHEME_LENGTH: Final = 2  # one letter before a colon is a drive, not a scheme

LOCAL_POLICY: Final = ContentPolicy(accept_objects=True)
"""Whoever types at the command line may name files of this machine."""


def add_media_argument(parser: argparse.ArgumentParser) -> None:
    """Adds the media as positional words behind the model, and what kind they are."""
    parser.usage = f"{parser.usage} [MEDIA ...]"
    parser.add_argument("media", metavar="MEDIA", nargs="*", help="files or URLs that the question is about")
    parser.add_argument("--modality", default="image", choices=("image", "video", "audio"), help="what MEDIA are")


def check_media(media: Sequence[str]) -> None:
    """Looks for files before a model is loaded to read them; what has a scheme is a URL.

    Raises:
        ConfigError: There is no such file.
    """
    for item in media:
        if len(urlsplit(item).scheme) < _MIN_SCHEME_LENGTH and not Path(item).is_file():
            raise ConfigError(f"There is no file {item!r}.")


def user_message(text: str, media: list[str], modality: str) -> dict[str, Any]:
    """Returns one message: the media first, then the text."""
    return {"role": "user", "content": [*({"type": modality, modality: item} for item in media), {"type": "text", "text": text}]}
