"""The media executor: separate lanes, clean end."""

from __future__ import annotations

import threading

import pytest

from inset.errors import OverloadedError
from inset.media.executor import MediaExecutor

TIME_LIMIT_SECONDS = 30.0


def test_videos_that_run_hold_up_neither_images_nor_audio() -> None:
    may_leave = threading.Event()
    with MediaExecutor(image_threads=1, video_threads=1) as executor:
        videos = [executor.submit("video", lambda: may_leave.wait(TIME_LIMIT_SECONDS)) for _ in range(3)]
        assert executor.submit("image", lambda: "picture").result(TIME_LIMIT_SECONDS) == "picture"
        assert executor.submit("audio", lambda: "sound").result(TIME_LIMIT_SECONDS) == "sound"
        may_leave.set()
        assert all(video.result(TIME_LIMIT_SECONDS) for video in videos)


@pytest.mark.parametrize(("modality", "lane"), [("image", "image"), ("audio", "image"), ("video", "video")])
def test_work_runs_in_a_thread_named_after_its_lane(modality: str, lane: str) -> None:
    with MediaExecutor(image_threads=1, video_threads=1) as executor:
        name = executor.submit(modality, lambda: threading.current_thread().name).result(TIME_LIMIT_SECONDS)
    assert name.startswith(f"inset-media-{lane}")


def test_errors_pass_through_the_future() -> None:
    def fail() -> None:
        raise ValueError("damaged")

    with MediaExecutor(image_threads=1, video_threads=1) as executor:
        assert isinstance(executor.submit("image", fail).exception(TIME_LIMIT_SECONDS), ValueError)


def test_closing_waits_for_what_runs_and_drops_what_waits() -> None:
    entered, may_leave = threading.Event(), threading.Event()

    def hold() -> str:
        entered.set()
        assert may_leave.wait(TIME_LIMIT_SECONDS)
        return "done"

    executor = MediaExecutor(image_threads=1, video_threads=1)
    running = executor.submit("image", hold)
    waiting = executor.submit("image", hold)
    assert entered.wait(TIME_LIMIT_SECONDS)
    closer = threading.Thread(target=executor.close)
    closer.start()
    waiting_ended = threading.Event()
    waiting.add_done_callback(lambda _: waiting_ended.set())
    assert waiting_ended.wait(TIME_LIMIT_SECONDS)
    may_leave.set()
    closer.join(TIME_LIMIT_SECONDS)
    assert running.result(0) == "done"
    assert waiting.cancelled()


def test_closed_executor_takes_no_work() -> None:
    executor = MediaExecutor(image_threads=1, video_threads=1)
    executor.close()
    executor.close()
    for modality in ("image", "video"):
        with pytest.raises(OverloadedError, match="closed"):
            executor.submit(modality, int)


def test_torch_in_a_media_thread_uses_no_more_threads_than_allowed() -> None:
    import torch

    with MediaExecutor(image_threads=1, video_threads=1, torch_threads=1) as executor:
        assert [executor.submit(modality, torch.get_num_threads).result(10) for modality in ("image", "video")] == [1, 1]
