"""Waiting for what other threads and processes bring about."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from inset.media.fetcher import MediaFetcher

__all__ = ["wait_until", "wait_until_waiting"]

LIMIT_SECONDS: Final = 20.0


def wait_until(condition: Callable[[], object]) -> None:
    """Blocks until a condition that another thread or process brings about holds."""
    deadline, pause = time.monotonic() + LIMIT_SECONDS, threading.Event()
    while not condition():
        assert time.monotonic() < deadline, f"it did not come about in {LIMIT_SECONDS:.0f} seconds"
        pause.wait(0.005)


def wait_until_waiting(fetcher: MediaFetcher, num_callers: int) -> None:
    """Blocks until so many callers wait for bytes, shared or not."""
    wait_until(lambda: fetcher.num_waiting >= num_callers)
