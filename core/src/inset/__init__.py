"""Inset: a plugin framework for serving models that read images, video and audio."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Final

from inset.hookspecs import hookimpl

if TYPE_CHECKING:
    from inset.media.offline import fetch_audio, fetch_image, fetch_video

__all__ = ["__version__", "fetch_audio", "fetch_image", "fetch_video", "hookimpl"]

__version__ = "0.1.0"

_LAZY: Final = {
    "fetch_audio": "inset.media.offline",
    "fetch_image": "inset.media.offline",
    "fetch_video": "inset.media.offline",
}
"""Name -> the module that it is imported from when it is first asked for, so that `import inset` stays light."""


def __getattr__(name: str) -> object:
    if name not in _LAZY:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value: object = getattr(importlib.import_module(_LAZY[name]), name)
    globals()[name] = value
    return value
