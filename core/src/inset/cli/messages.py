"""Questions about media, from words on the command line to messages."""

from __future__ import annotations

import argparse
import mimetypes
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

from inset.cli.options import add_options
from inset.engine.content_parts import ContentPolicy
from inset.errors import ConfigError
from inset.registry import is_scheme

__all__ = ["LOCAL_POLICY", "add_media_options", "check_media", "split_words", "user_message"]

_MODALITIES: Final = ("image", "video", "audio")
_MIN_SCHEME_LENGTH: Final = 2  # one letter before a colon is a drive, not a scheme

LOCAL_POLICY: Final = ContentPolicy(accept_objects=True)
"""Whoever types at the command line may name files of this machine."""


def add_media_options(parser: argparse.ArgumentParser) -> None:
    """Adds the model and the media as positional words, what kind the media are, and a flag for every option."""
    add_options(parser, has_media=True)
    parser.add_argument("--modality", choices=_MODALITIES, help="what MEDIA are (default: as their names end; else image)")


def split_words(args: argparse.Namespace) -> list[str]:
    """Returns the media among the words of the command line, and leaves the model where `read_options` looks for it."""
    words = list(args.words)
    args.model = words.pop(0) if words and args.model_flag is None else None
    return words


def check_media(media: Sequence[str]) -> None:
    """Looks for files before a model is loaded to read them; what has a scheme is a URL.

    Raises:
        ConfigError: There is no such file.
    """
    for item in media:
        scheme, colon, _ = item.partition(":")
        is_url = bool(colon) and len(scheme) >= _MIN_SCHEME_LENGTH and is_scheme(scheme.lower())
        if not is_url and not Path(item).is_file():
            raise ConfigError(f"There is no file {item!r}.")


def user_message(text: str, media: list[str], modality: str | None) -> dict[str, Any]:
    """Returns one message: the media first, then the text; without a modality, each item's own name tells it."""
    told = [(modality or _modality_of(item), item) for item in media]
    return {"role": "user", "content": [*({"type": kind, kind: item} for kind, item in told), {"type": "text", "text": text}]}


def _modality_of(item: str) -> str:
    kind = (mimetypes.guess_type(item.partition("?")[0])[0] or "").split("/")[0]
    return kind if kind in _MODALITIES else "image"
