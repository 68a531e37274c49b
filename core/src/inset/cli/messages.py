"""Questions about media, from words on the command line to messages."""

from __future__ import annotations

import argparse
from typing import Any, Final

from inset.engine.content_parts import ContentPolicy

__all__ = ["LOCAL_POLICY", "add_media_argument", "user_message"]

LOCAL_POLICY: Final = ContentPolicy(accept_objects=True)
"""Whoever types at the command line may name files of this machine."""


def add_media_argument(parser: argparse.ArgumentParser) -> None:
    """Adds the media as positional words behind the model, and what kind they are."""
    parser.usage = f"{parser.usage} [MEDIA ...]"
    parser.add_argument("media", metavar="MEDIA", nargs="*", help="files or URLs that the question is about")
    parser.add_argument("--modality", default="image", choices=("image", "video", "audio"), help="what MEDIA are")


def user_message(text: str, media: list[str], modality: str) -> dict[str, Any]:
    """Returns one message: the media first, then the text."""
    return {"role": "user", "content": [*({"type": modality, modality: item} for item in media), {"type": "text", "text": text}]}
