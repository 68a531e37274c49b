"""Headers of media that nobody has to make, for tests of plans."""

from __future__ import annotations

import dataclasses

from inset.media.header import MediaHeader

__all__ = ["image_header", "video_header", "with_frames"]


def image_header(height: int, width: int) -> MediaHeader:
    """Returns the header of an RGB image of ``height`` x ``width`` pixels."""
    return MediaHeader(modality="image", height=height, width=width, decoded_bytes=3 * height * width)


def video_header(num_frames: int, height: int, width: int, *, fps: float | None = 24.0, every: int = 1) -> MediaHeader:
    """Returns the header of a video of which ``num_frames`` are decoded, one of each ``every`` frames of the file."""
    return MediaHeader(
        modality="video",
        height=height,
        width=width,
        num_frames=num_frames,
        total_num_frames=num_frames * every,
        fps=fps,
        frame_indices=tuple(range(0, num_frames * every, every)),
        decoded_bytes=3 * num_frames * height * width,
    )


def with_frames(header: MediaHeader, num_frames: int) -> MediaHeader:
    """Returns the header of a video of so many frames as large as its own, one a second."""
    indices = tuple(range(num_frames))
    return dataclasses.replace(
        header,
        num_frames=num_frames,
        total_num_frames=num_frames,
        fps=1.0,
        frame_indices=indices,
        timestamps_seconds=tuple(map(float, indices)),
        duration_seconds=float(num_frames),
        decoded_bytes=header.decoded_bytes * num_frames,
    )
