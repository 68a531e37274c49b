"""Inset: a plugin framework for serving models that read images, video and audio."""

from inset.hookspecs import hookimpl

__all__ = ["__version__", "hookimpl"]

__version__ = "0.1.0"
