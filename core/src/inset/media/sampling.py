"""Which frames of a video are decoded: pure functions of what the demux pass counted."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final, Protocol

import numpy as np

from inset.identity import JSON

__all__ = ["DEFAULT_MAX_FRAMES", "DEFAULT_NUM_FRAMES", "FpsSampler", "UniformSampler", "VideoFacts", "VideoSampler", "indices_at"]

DEFAULT_NUM_FRAMES: Final = 32
DEFAULT_MAX_FRAMES: Final = 768


@dataclass(frozen=True, slots=True, kw_only=True)
class VideoFacts:
    """What a sampler may know about a video.

    Attributes:
        num_frames: Frames, counted in the file; at least 1.
        fps: Average frame rate, in frames per second; above 0.
        duration_seconds: Length of the whole video.
        width: Width in pixels, after rotation.
        height: Height in the same way.
        timestamps_seconds: When each frame is shown, in seconds from the first one, ascending.
    """

    num_frames: int
    fps: float
    duration_seconds: float
    width: int
    height: int
    timestamps_seconds: Sequence[float]


class VideoSampler(Protocol):
    """Chooses frames. Pure: equal facts give equal frames. A model family brings its own where it has rules of its own."""

    @property
    def name(self) -> str:
        """Names the rule; part of the decode spec, so a rule that changes needs another name."""

    def get_settings(self) -> Mapping[str, JSON]:
        """Returns everything else that affects the choice; part of the decode spec."""

    def sample(self, facts: VideoFacts) -> Sequence[int]:
        """Returns positions among the frames of the video, ascending, at least one; a position may come twice."""


@dataclass(frozen=True, slots=True)
class UniformSampler:
    """A number of frames at even distances from the first to the last, or all where there are no more.

    Attributes:
        num_frames: How many; None takes all.
    """

    num_frames: int | None = DEFAULT_NUM_FRAMES
    name: str = "uniform"

    def get_settings(self) -> Mapping[str, JSON]:
        """Returns the number of frames."""
        return {"num_frames": self.num_frames}

    def sample(self, facts: VideoFacts) -> Sequence[int]:
        """Returns evenly spaced positions; fractions are cut off."""
        if self.num_frames is None or self.num_frames >= facts.num_frames:
            return range(facts.num_frames)
        return [int(index) for index in np.linspace(0, facts.num_frames - 1, self.num_frames, dtype=np.int64)]


@dataclass(frozen=True, slots=True)
class FpsSampler:
    """The frames that are shown at a steady rate, at most a number of them; then they are spread evenly.

    Attributes:
        fps: Frames per second of the video.
        max_frames: Most frames.
    """

    fps: float = 2.0
    max_frames: int = DEFAULT_MAX_FRAMES
    name: str = "fps"

    def get_settings(self) -> Mapping[str, JSON]:
        """Returns rate and limit."""
        return {"fps": self.fps, "max_frames": self.max_frames}

    def sample(self, facts: VideoFacts) -> Sequence[int]:
        """Returns the frames shown at 0, 1/fps, 2/fps ... seconds, each at most once."""
        last_tick = facts.duration_seconds * self.fps
        if last_tick >= self.max_frames:
            return UniformSampler(self.max_frames).sample(facts)
        ticks = [tick / self.fps for tick in range(int(last_tick) + 1) if tick == 0 or tick / self.fps < facts.duration_seconds]
        return sorted(set(indices_at(facts, ticks)))


def indices_at(facts: VideoFacts, timestamps_seconds: Sequence[float]) -> list[int]:
    """Returns the frame that is on the screen at each of the times: the last one that has begun."""
    shown = np.searchsorted(np.asarray(facts.timestamps_seconds), np.asarray(timestamps_seconds) + 1e-6, side="right") - 1
    return [int(index) for index in np.clip(shown, 0, facts.num_frames - 1)]
