"""Inset: a plugin framework for serving models that read images, video and audio."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Final

from inset.hookspecs import hookimpl

if TYPE_CHECKING:
    from inset.engine.async_llm import AsyncLLM
    from inset.engine.content_parts import ContentPolicy
    from inset.engine.core import Core
    from inset.engine.llm import LLM
    from inset.engine.prompts import ChatPrompt, RequestOptions, TextPrompt
    from inset.engine.renderer import ChatOptions
    from inset.media.offline import fetch_audio, fetch_image, fetch_video
    from inset.sampling_params import SamplingParams

__all__ = [
    "LLM",
    "AsyncLLM",
    "ChatOptions",
    "ChatPrompt",
    "ContentPolicy",
    "Core",
    "RequestOptions",
    "SamplingParams",
    "TextPrompt",
    "__version__",
    "fetch_audio",
    "fetch_image",
    "fetch_video",
    "hookimpl",
]

__version__ = "0.1.0"

_LAZY: Final = {
    "AsyncLLM": "inset.engine.async_llm",
    "ChatOptions": "inset.engine.renderer",
    "ChatPrompt": "inset.engine.prompts",
    "ContentPolicy": "inset.engine.content_parts",
    "Core": "inset.engine.core",
    "LLM": "inset.engine.llm",
    "RequestOptions": "inset.engine.prompts",
    "SamplingParams": "inset.sampling_params",
    "TextPrompt": "inset.engine.prompts",
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
