"""HTTP, read by httptools."""

from __future__ import annotations

import re
from typing import Final

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from inset.server.http_heads import LimitedHeads

__all__ = ["HttpProtocol"]

_UPGRADE: Final = re.compile(rb"\r\nupgrade:", re.IGNORECASE)


class HttpProtocol(LimitedHeads, HttpToolsProtocol):
    """Leaves offers to change to another protocol alone, as HTTP allows: Java's client makes one with each request.

    The parser would stop behind the headers for such an offer, and the body be lost.
    """

    def data_received(self, data: bytes) -> None:
        """Hides the offer from the parser; bodies in JSON cannot contain a line like it."""
        super().data_received(_UPGRADE.sub(b"\r\nx-offered-protocol:", data, count=1) if b"pgrade:" in data else data)
