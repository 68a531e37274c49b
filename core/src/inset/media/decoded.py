"""The values that decoding gives: pixels, frames, samples. Arrays are owned by the reference that decoded them; treat them as read-only."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeAlias

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

__all__ = ["AudioSamples", "ImagePixels", "VideoFrames"]

ImagePixels: TypeAlias = "NDArray[np.uint8]"
"""One decoded image: ``(height, width, 3)`` uint8 RGB in [0, 255], C-contiguous, upright; 1 or 4 channels for image modes L and RGBA."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class VideoFrames:
    """Decoded frames of one video, and where they lay in it.

    Attributes:
        frames: ``(num_frames, height, width, 3)`` uint8 RGB in [0, 255], C-contiguous, upright.
        total_num_frames: Frames in the whole video.
        fps: Average frame rate of the whole video, in frames per second.
        duration_seconds: Length of the whole video.
        frame_indices: Position of each frame among all frames of the video, ascending.
        timestamps_seconds: When each frame is shown, in seconds from the first frame of the video.
    """

    frames: NDArray[np.uint8]
    total_num_frames: int
    fps: float
    duration_seconds: float
    frame_indices: tuple[int, ...]
    timestamps_seconds: tuple[float, ...]


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class AudioSamples:
    """Decoded sound.

    Attributes:
        samples: ``(num_channels, num_samples)`` float32, nominally in [-1, 1], every value finite.
        sampling_rate: Samples per second and channel.
    """

    samples: NDArray[np.float32]
    sampling_rate: int
