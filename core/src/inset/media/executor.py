"""The threads that decode: one lane for images and audio, one for videos, so that a long video never holds up a picture."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Self, TypeVar

__all__ = ["MediaExecutor"]

T = TypeVar("T")


class MediaExecutor:
    """Runs work on media off the caller's thread; lives as long as the core that made it."""

    def __init__(self, *, image_threads: int, video_threads: int) -> None:
        """Makes the lanes; threads start as work arrives.

        Args:
            image_threads: Threads for images and audio.
            video_threads: Threads for videos.
        """
        self._images = ThreadPoolExecutor(image_threads, thread_name_prefix="inset-media-image")
        self._videos = ThreadPoolExecutor(video_threads, thread_name_prefix="inset-media-video")

    def submit(self, modality: str, work: Callable[[], T]) -> Future[T]:
        """Runs work in the lane of a modality and returns its future.

        Raises:
            RuntimeError: The executor is closed.
        """
        lane = self._videos if modality == "video" else self._images
        return lane.submit(work)

    def close(self) -> None:
        """Drops work that has not begun and waits for the rest; may be called again."""
        for lane in (self._images, self._videos):
            lane.shutdown(wait=True, cancel_futures=True)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc_info: object) -> None:
        self.close()
