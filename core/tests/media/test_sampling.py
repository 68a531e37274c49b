"""Samplers: pure functions of what was counted."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from inset.media.sampling import FpsSampler, UniformSampler, VideoFacts, indices_at


def make_facts(num_frames: int, fps: float = 30.0) -> VideoFacts:
    return VideoFacts(
        num_frames=num_frames,
        fps=fps,
        duration_seconds=num_frames / fps,
        width=64,
        height=48,
        timestamps_seconds=[index / fps for index in range(num_frames)],
    )


@pytest.mark.parametrize(
    ("num_frames", "wanted", "expected"),
    [
        (10, 4, [0, 3, 6, 9]),
        (10, 1, [0]),
        (10, 2, [0, 9]),
        (3, 4, [0, 1, 2]),
        (1, 4, [0]),
        (5, None, [0, 1, 2, 3, 4]),
        (1800, 8, [0, 257, 514, 771, 1028, 1285, 1542, 1799]),
    ],
)
def test_uniform_spreads_from_first_to_last(num_frames: int, wanted: int | None, expected: list[int]) -> None:
    assert list(UniformSampler(wanted).sample(make_facts(num_frames))) == expected


@pytest.mark.parametrize(
    ("num_frames", "video_fps", "fps", "expected"),
    [
        (30, 30.0, 2.0, [0, 15]),
        (31, 30.0, 2.0, [0, 15, 30]),
        (4, 1.0, 1.0, [0, 1, 2, 3]),
        (4, 1.0, 2.0, [0, 1, 2, 3]),
        (1, 30.0, 2.0, [0]),
        (10, 25.0, 10.0, [0, 2, 5, 7]),
    ],
)
def test_fps_takes_what_is_on_the_screen_at_each_tick(num_frames: int, video_fps: float, fps: float, expected: list[int]) -> None:
    assert list(FpsSampler(fps).sample(make_facts(num_frames, video_fps))) == expected


def test_fps_follows_true_timestamps_of_a_variable_rate() -> None:
    facts = VideoFacts(num_frames=4, fps=1.0, duration_seconds=4.0, width=1, height=1, timestamps_seconds=[0.0, 0.1, 2.9, 3.5])
    assert FpsSampler(1.0).sample(facts) == [0, 1, 2]


def test_fps_spreads_evenly_where_it_would_take_too_many() -> None:
    assert list(FpsSampler(30.0, max_frames=4).sample(make_facts(10))) == [0, 3, 6, 9]


@settings(deadline=None)
@given(st.integers(1, 5000), st.floats(0.1, 240), st.floats(0.01, 240), st.integers(1, 100))
def test_samples_are_ascending_positions_within_the_video(num_frames: int, video_fps: float, fps: float, limit: int) -> None:
    facts = make_facts(num_frames, video_fps)
    for sampler in (UniformSampler(limit), FpsSampler(fps, limit)):
        indices = list(sampler.sample(facts))
        assert 1 <= len(indices) <= limit
        assert indices == sorted(indices)
        assert set(indices) <= set(range(num_frames))


def test_times_outside_the_video_give_its_ends() -> None:
    assert indices_at(make_facts(30), [-1.0, 0.0, 0.5, 99.0]) == [0, 0, 15, 29]
