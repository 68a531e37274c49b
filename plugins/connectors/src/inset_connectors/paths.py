"""Paths in URLs that name something inside a store or an archive."""

from __future__ import annotations

from urllib.parse import unquote

from inset.api import MediaPolicyError

__all__ = ["decode_path"]


def decode_path(encoded: str, where: str) -> str:
    """Returns a plain relative path, percent-decoded.

    Args:
        encoded: As it stands in the URL.
        where: For the message.

    Raises:
        MediaPolicyError: It is absolute, has a part that is empty, ``.`` or ``..``, a NUL, a back-slash, or bytes that are not UTF-8.
    """
    path = unquote(encoded, errors="replace")
    if {"", ".", ".."} & set(path.split("/")) or any(mark in path for mark in "\0\\\ufffd"):
        raise MediaPolicyError(f"{where}: the name behind it is not a plain relative path.", stage="fetch")
    return path
