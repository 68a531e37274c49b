"""Resets of caches that somebody waits for."""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import Callable
from typing import TYPE_CHECKING, Final

from inset.engine.messages import Reset
from inset.errors import OverloadedError

if TYPE_CHECKING:
    from inset.engine.messages import ResetTarget
    from inset.errors import EngineDeadError

__all__ = ["PendingResets"]

_PATIENCE_SECONDS: Final = 30.0


class PendingResets:
    """Waits until the engine core says that a reset has ended everywhere. For one event loop."""

    def __init__(self) -> None:
        self._ends: dict[str, asyncio.Future[None]] = {}

    async def run(self, target: ResetTarget, send: Callable[[Reset], None]) -> None:
        """Sends a reset, and waits for its end.

        Raises:
            OverloadedError: A process did not answer in time.
            EngineDeadError: The engine core is gone, or ends meanwhile.
        """
        token = uuid.uuid4().hex
        end = self._ends[token] = asyncio.get_running_loop().create_future()
        try:
            send(Reset(target, token))
            async with asyncio.timeout(_PATIENCE_SECONDS):
                await end
        except TimeoutError as error:
            raise OverloadedError(
                f"Not every process has emptied its cache within {_PATIENCE_SECONDS:.0f} seconds; ask again.", stage="queue"
            ) from error
        finally:
            del self._ends[token]

    def end(self, token: str) -> None:
        """Notes that a reset has ended; an unknown one is ignored."""
        end = self._ends.get(token)
        if end is not None and not end.done():
            end.set_result(None)

    def fail_all(self, error: EngineDeadError) -> None:
        """Ends every wait with an error of its own."""
        for end in self._ends.values():
            if not end.done():
                end.set_exception(type(error)(error.message))
