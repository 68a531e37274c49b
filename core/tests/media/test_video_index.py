"""Which packets a plan decodes: the fewest that give each frame exactly, found in one pass."""

from __future__ import annotations

import sys
from collections.abc import Callable
from types import FrameType
from typing import Any

import numpy as np
import pytest

from inset.media import video_index
from inset.media.video_index import VideoIndex


def make_index(timestamps: list[int], keyframes: list[int]) -> VideoIndex:
    stamps = np.array(timestamps, dtype=np.int64)
    return VideoIndex(stamps, np.array(keyframes, dtype=np.int64), np.argsort(stamps, kind="stable"), has_timestamps=True)


def start_by_hand(index: VideoIndex, packet: int) -> int:
    usable = [int(key) for key in index.keyframes if key <= packet and index.timestamps[key] <= index.timestamps[packet]]
    return usable[-1] if usable else 0


@pytest.mark.parametrize("seed", range(20))
def test_each_frame_begins_at_the_last_keyframe_that_is_not_shown_after_it(seed: int) -> None:
    rng = np.random.default_rng(seed)
    num_packets = int(rng.integers(1, 40))
    keyframes = np.flatnonzero(rng.random(num_packets) < 0.4).tolist()
    index = make_index(rng.permutation(num_packets).tolist(), keyframes)
    for position, packet in enumerate(index.frames.tolist()):
        assert index.plan([position]).segments == ((start_by_hand(index, packet), packet + 1),)
    every = index.plan(range(num_packets)).segments
    assert all(any(start <= start_by_hand(index, packet) and packet < stop for start, stop in every) for packet in range(num_packets))


def count_lines(work: Callable[[], object]) -> int:
    """Returns how many lines of the module run."""
    lines = 0

    def trace(frame: FrameType, event: str, argument: Any) -> Any:
        nonlocal lines
        lines += event == "line"
        return trace if frame.f_code.co_filename == video_index.__file__ else None

    before = sys.gettrace()
    sys.settrace(trace)
    try:
        work()
    finally:
        sys.settrace(before)
    return lines


def test_work_grows_with_the_packets_and_not_with_their_square() -> None:
    """Every keyframe is shown after every frame that is wanted."""
    num_keyframes = num_frames = 1000
    timestamps = [*range(num_frames, num_frames + num_keyframes), *range(num_frames)]
    index = make_index(timestamps, list(range(num_keyframes)))
    assert index.plan(range(num_frames)).segments == ((0, num_keyframes + num_frames),)
    assert count_lines(lambda: index.plan(range(num_frames))) < 20 * (num_keyframes + num_frames)
