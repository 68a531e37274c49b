"""What a probe saw in the header of encoded media, without decoding it."""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["MediaHeader"]


@dataclass(frozen=True, slots=True, kw_only=True)
class MediaHeader:
    """The facts of one item that are known before it is decoded; None or empty where they do not apply or are not known.

    Attributes:
        modality: ``image``, ``video`` or ``audio``.
        format: Format of the container, such as ``JPEG``, ``mp4`` or ``FLAC``; found in the content, never in a label.
        width: Width of the decoded image or frame in pixels, after orientation or rotation.
        height: Height in the same way.
        mode: The pixel or sample layout inside the file, such as ``RGBA``, ``I;16``, ``yuv420p`` or ``PCM_16``.
        orientation: EXIF orientation that decoding applies, 1 to 8.
        rotation: Clockwise turn that decoding applies to video frames, in degrees: 0, 90, 180 or 270.
        num_frames: Frames that decoding gives; for video an upper bound, because damaged frames are left out.
        total_num_frames: Frames in the whole video.
        fps: Average frame rate of the whole video, in frames per second.
        frame_indices: Positions of the decoded frames among all frames of the video, ascending.
        timestamps_seconds: When each decoded frame is shown, in seconds from the first frame of the video.
        duration_seconds: Length of the whole video or sound; for frames, their number over `fps`.
        sampling_rate: Samples per second and channel.
        num_channels: Channels of sound.
        num_samples: Samples per channel; an estimate where the file does not say.
        decoded_bytes: Size of the decoded media, in bytes; an upper bound.
        peak_bytes: Most bytes that exist at one time while it is decoded, the decoded media included; 0 where that is all there is.
        image_id: The ImageID of an image's EXIF block, where it is trusted as the image's identity.
    """

    modality: str
    format: str = ""
    width: int | None = None
    height: int | None = None
    mode: str | None = None
    orientation: int = 1
    rotation: int = 0
    num_frames: int | None = None
    total_num_frames: int | None = None
    fps: float | None = None
    frame_indices: tuple[int, ...] = ()
    timestamps_seconds: tuple[float, ...] = ()
    duration_seconds: float | None = None
    sampling_rate: int | None = None
    num_channels: int | None = None
    num_samples: int | None = None
    decoded_bytes: int = 0
    peak_bytes: int = 0
    image_id: bytes | None = None
