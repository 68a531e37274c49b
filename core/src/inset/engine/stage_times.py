"""Where the time of one request goes before the engine core has it."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager

__all__ = ["StageTimes"]


class StageTimes:
    """Stage -> seconds, all items of a request together; a stage that did not happen is absent. For one event loop.

    Attributes:
        seconds: The times so far.
    """

    def __init__(self) -> None:
        self.seconds: dict[str, float] = {}

    def add(self, stage: str, seconds: float) -> None:
        """Adds to a stage."""
        self.seconds[stage] = self.seconds.get(stage, 0.0) + seconds

    @contextmanager
    def timed(self, stage: str) -> Iterator[None]:
        """Adds the time of the block to a stage, also where it fails."""
        started = time.perf_counter()
        try:
            yield
        finally:
            self.add(stage, time.perf_counter() - started)
