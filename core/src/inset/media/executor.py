"""The threads that decode: one lane for images and audio, one for videos, so that a long video never holds up a picture."""

from __future__ import annotations

import os
import sys
import threading
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from functools import partial
from typing import Any, Final, Self, TypeVar

from inset.errors import OverloadedError

__all__ = ["MediaExecutor"]

T = TypeVar("T")

_NICENESS: Final = 10
"""Of threads that decode: on busy cores they get a tenth of what the event loop and the engine get, so that answers keep their pace."""


class MediaExecutor:
    """Runs work on media off the caller's thread; lives as long as the core that made it."""

    def __init__(self, *, image_threads: int, video_threads: int, torch_threads: int = 1) -> None:
        """Makes the lanes; threads start as work arrives.

        Args:
            image_threads: Threads for images and audio.
            video_threads: Threads for videos.
            torch_threads: Threads that torch may use for the work of each of them, where torch is loaded already.
        """
        limit = partial(_begin, torch_threads)
        self._images = ThreadPoolExecutor(image_threads, thread_name_prefix="inset-media-image", initializer=limit)
        self._videos = ThreadPoolExecutor(video_threads, thread_name_prefix="inset-media-video", initializer=limit)

    def submit(self, modality: str, work: Callable[[], T]) -> Future[T]:
        """Runs work in the lane of a modality and returns its future.

        Raises:
            OverloadedError: The executor is closed.
        """
        lane = self._videos if modality == "video" else self._images
        try:
            return lane.submit(work)
        except RuntimeError as error:
            raise OverloadedError("The media pool is closed: this core is shutting down.", stage="decode") from error

    def close(self) -> None:
        """Drops work that has not begun and waits for the rest; may be called again."""
        for lane in (self._images, self._videos):
            lane.shutdown(wait=True, cancel_futures=True)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc_info: object) -> None:
        self.close()


def _begin(torch_threads: int) -> None:
    """Prepares a thread of a lane: it gives way to threads that answer, and torch uses no more threads for its work than allowed."""
    if sys.platform == "linux":
        os.setpriority(os.PRIO_PROCESS, threading.get_native_id(), _NICENESS)
    torch: Any = sys.modules.get("torch")
    if torch is not None:
        torch.set_num_threads(torch_threads)  # every thread has a number of its own, and a new one begins with all cores
