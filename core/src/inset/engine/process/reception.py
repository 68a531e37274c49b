"""Where front ends come in: each is met in a thread of its own, so that one that stays silent holds up nobody."""

from __future__ import annotations

import contextlib
import logging
import socket
import threading
from collections.abc import Callable
from typing import TYPE_CHECKING, Final

from inset.cache.handover import receive_export
from inset.engine.process import control
from inset.errors import InsetError

if TYPE_CHECKING:
    from inset.cache.values import CacheExport

__all__ = ["Admit", "Reception"]

logger = logging.getLogger(__name__)

_HELLO_SECONDS: Final = 10.0

Admit = Callable[[control.Hello, "CacheExport | None"], None]


class Reception:
    """Meets front ends.

    Args:
        listener: Where they connect.
        admit: Checks a front end and joins its cache half; raises `InsetError` to refuse it. Called for one after the other.
        on_admitted: Takes the connection, which no longer blocks, and the name of a front end, before that is told; owns the connection.
    """

    def __init__(self, listener: socket.socket, *, admit: Admit, on_admitted: Callable[[socket.socket, str], None]) -> None:
        self._listener = listener
        self._admit = admit
        self._on_admitted = on_admitted
        self._lock = threading.Lock()

    def accept(self) -> None:
        """Takes the next connection, which waits already, and meets its front end in a thread."""
        connection, _ = self._listener.accept()
        threading.Thread(target=self._meet, args=(connection,), name="inset-reception", daemon=True).start()

    def _meet(self, connection: socket.socket) -> None:
        """Takes a front end in, or tells it why not."""
        connection.settimeout(_HELLO_SECONDS)
        try:
            hello = control.receive(connection, control.Hello)
            with receive_export(connection) as export:
                refusal = self._admit_one(hello, export)
        except (OSError, InsetError) as error:
            logger.warning("A front end was not met: %s", error)
            connection.close()
            return
        except Exception:
            logger.exception("A front end could not be met")
            connection.close()
            return
        connection.setblocking(False)
        if refusal is None:
            self._on_admitted(connection, hello.front_id)
        with contextlib.suppress(OSError):  # whoever owns the connection notices its end
            control.send(connection, control.Reply(refusal))
        if refusal is not None:  # which the front end tells
            connection.close()

    def _admit_one(self, hello: control.Hello, export: CacheExport | None) -> str | None:
        """Returns why a front end is refused, or None."""
        with self._lock:
            try:
                self._admit(hello, export)
            except InsetError as error:
                return error.message
        return None
