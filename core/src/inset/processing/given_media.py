"""Media that offline callers hand over decoded: PIL images, arrays, tensors. Brought into the form that decoding gives."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from numbers import Integral, Real
from typing import TYPE_CHECKING, Any, Final

from inset.errors import InvalidRequestError
from inset.media.decoded import AudioSamples, ImagePixels, VideoFrames
from inset.media.header import MediaHeader

if TYPE_CHECKING:
    import numpy as np
    from PIL import Image

__all__ = ["audio_samples", "image_header", "image_pixels", "sound_header", "to_array", "video_frames", "video_header"]

_WHITE: Final = (255, 255, 255)
_DEFAULT_FPS: Final = 24.0
"""Frame rate of frames that come without one. Source: transformers 5 `VideoMetadata` users."""


def to_array(value: object) -> np.ndarray[Any, Any] | None:
    """Returns a numpy array or torch tensor as a numpy array, bfloat16 widened to float32, or None for anything else."""
    import numpy as np

    if isinstance(value, np.ndarray):
        return value
    if type(value).__module__ == "torch" and hasattr(value, "detach"):
        try:
            tensor: Any = value.detach().cpu()
            return np.asarray(tensor.float() if str(tensor.dtype) == "torch.bfloat16" else tensor)
        except (TypeError, NotImplementedError):  # sparse, quantised, or without data
            return None
    return None


def is_pil_image(value: object) -> bool:
    """Whether this is a Pillow image."""
    from PIL import Image

    return isinstance(value, Image.Image)


def image_pixels(image: object) -> ImagePixels:
    """Returns an image as ``(height, width, 3)`` uint8 RGB.

    Args:
        image: A PIL image of any mode, or an array or tensor of uint8: grey ``(height, width)``, or with 1, 3 or 4 channels, last or first.

    Raises:
        InvalidRequestError: It is something else.
    """
    import numpy as np

    from inset.media.image_pixels import convert_mode, pixels_of

    if is_pil_image(image):
        return pixels_of(convert_mode(image, "RGB", _WHITE))  # type: ignore[arg-type]
    array = _image_array(image)
    if array.shape[2] == 4:
        from PIL import Image

        return pixels_of(convert_mode(Image.fromarray(array, "RGBA"), "RGB", _WHITE))
    return np.ascontiguousarray(array if array.shape[2] == 3 else np.repeat(array, 3, axis=2))


def image_header(image: object) -> MediaHeader:
    """Returns the size of an image that came decoded.

    Raises:
        InvalidRequestError: It is nothing that `image_pixels` takes.
    """
    if is_pil_image(image):
        pil: Image.Image = image  # type: ignore[assignment]
        width, height = pil.size
    else:
        height, width, _ = _image_array(image).shape
    if not width or not height:
        raise InvalidRequestError(f"An image of {width}x{height} pixels has nothing to show.", stage="parse")
    return MediaHeader(modality="image", width=width, height=height, decoded_bytes=width * height * 3)


def _image_array(image: object) -> np.ndarray[Any, Any]:
    """An array with its channels last."""
    import numpy as np

    array = to_array(image)
    if array is None:
        raise InvalidRequestError(
            f"A {type(image).__name__} is not an image. Give a MediaRef, a PIL image, encoded bytes, or a uint8 array or tensor.",
            stage="parse",
        )
    if array.dtype != np.uint8:
        raise InvalidRequestError(f"An image array must be uint8 in [0, 255], not {array.dtype}.", stage="parse")
    if array.ndim == 2:
        return array[:, :, None]
    if array.ndim == 3 and array.shape[2] in (1, 3, 4):
        return array
    if array.ndim == 3 and array.shape[0] in (1, 3, 4):
        return array.transpose(1, 2, 0)
    raise InvalidRequestError(f"An image array must have 1, 3 or 4 channels, first or last; its shape is {array.shape}.", stage="parse")


def video_frames(video: object) -> VideoFrames:
    """Returns a video as `VideoFrames`.

    Args:
        video: `VideoFrames`; an array or tensor ``(num_frames, height, width, 3)`` uint8; a sequence of images of one size; or a pair of
            one of these and a mapping with any of ``fps``, ``duration``, ``total_num_frames`` and ``frames_indices``; None is
            what is not given.

    Raises:
        InvalidRequestError: It is something else, or its metadata cannot be that of a video.
    """
    if isinstance(video, VideoFrames):
        _number(video.fps, "fps")
        return video
    metadata: Mapping[str, Any] = {}
    if isinstance(video, tuple) and len(video) == 2 and isinstance(video[1], Mapping):
        video, metadata = video
    frames = _frames_array(video)
    indices = _frame_indices(metadata.get("frames_indices"), len(frames))
    fps, given_total, duration = (metadata.get(name) for name in ("fps", "total_num_frames", "duration"))
    fps = _DEFAULT_FPS if fps is None else _number(fps, "fps")
    total = indices[-1] + 1 if given_total is None else _whole_number(given_total, "total_num_frames")
    if indices[-1] >= total:
        raise InvalidRequestError(f"total_num_frames is {total}, and there is a frame at position {indices[-1]}.", stage="parse")
    return VideoFrames(
        frames=frames,
        total_num_frames=total,
        fps=fps,
        duration_seconds=total / fps if duration is None else _number(duration, "duration"),
        frame_indices=indices,
        timestamps_seconds=tuple(index / fps for index in indices),
    )


def _frame_indices(given: object, num_frames: int) -> tuple[int, ...]:
    """The positions of frames in their video, from an array, a tensor or numbers; the first ones where nothing is given."""
    if given is None:
        return tuple(range(num_frames))
    array = to_array(given)
    values = given if array is None else array.tolist()
    indices = list(values) if isinstance(values, Sequence) else []
    if len(indices) != num_frames:
        raise InvalidRequestError(f"A video has {num_frames} frames, and its metadata names {len(indices)}.", stage="parse")
    if not all(isinstance(index, Integral) for index in indices) or indices != sorted(indices) or indices[0] < 0:
        raise InvalidRequestError("frames_indices must be ascending positions, whole numbers of 0 or more.", stage="parse")
    return tuple(int(index) for index in indices)


def _number(value: object, name: str) -> float:
    try:
        number = 0.0 if isinstance(value, bool) or not isinstance(value, Real) else float(value)
    except OverflowError:
        number = math.inf
    if not 0 < number < math.inf:
        raise InvalidRequestError(f"{name} must be a finite number above 0, not {value!r:.40}.", stage="parse")
    return number


def _whole_number(value: object, name: str) -> int:
    number = _number(value, name)
    if number != int(number):
        raise InvalidRequestError(f"{name} must be a whole number, not {value!r:.40}.", stage="parse")
    return int(number)


def _frames_array(video: object) -> np.ndarray[Any, Any]:
    import numpy as np

    array = to_array(video)
    if array is None and isinstance(video, Sequence) and video and not isinstance(video, str | bytes):
        images = [image_pixels(frame) for frame in video]
        if len({image.shape for image in images}) > 1:
            raise InvalidRequestError("The frames of a video must have one size.", stage="parse")
        return np.stack(images)
    if array is None:
        raise InvalidRequestError(
            f"A {type(video).__name__} is not a video. Give a MediaRef, encoded bytes, or frames as an array, tensor or list.",
            stage="parse",
        )
    if array.ndim == 4 and array.shape[3] != 3 and array.shape[1] == 3:
        array = array.transpose(0, 2, 3, 1)
    if array.dtype != np.uint8 or array.ndim != 4 or array.shape[3] != 3 or not array.size:
        raise InvalidRequestError(
            f"Frames must be (num_frames, height, width, 3) uint8; they are {array.shape} {array.dtype}.", stage="parse"
        )
    return np.ascontiguousarray(array)


def video_header(video: VideoFrames) -> MediaHeader:
    """Returns the facts of a video that came decoded."""
    num_frames, height, width, _ = video.frames.shape
    return MediaHeader(
        modality="video",
        width=width,
        height=height,
        num_frames=num_frames,
        total_num_frames=video.total_num_frames,
        fps=video.fps,
        frame_indices=video.frame_indices,
        timestamps_seconds=video.timestamps_seconds,
        duration_seconds=video.duration_seconds,
        decoded_bytes=video.frames.nbytes,
    )


def audio_samples(audio: object) -> AudioSamples:
    """Returns a sound as `AudioSamples`.

    Args:
        audio: `AudioSamples`, or a pair of float samples, ``(num_samples,)`` or ``(num_channels, num_samples)``, and their rate.

    Raises:
        InvalidRequestError: It is something else, is empty, has no rate, or holds values that are not finite.
    """
    import numpy as np

    if isinstance(audio, AudioSamples):
        _whole_number(audio.sampling_rate, "The sampling rate")
        return audio
    array = to_array(audio[0]) if isinstance(audio, tuple) and len(audio) == 2 else None
    if array is None or array.ndim not in (1, 2) or not np.issubdtype(array.dtype, np.floating):
        raise InvalidRequestError("Sound must be a MediaRef, encoded bytes, or a pair (float samples, sampling rate).", stage="parse")
    samples = np.ascontiguousarray(np.atleast_2d(array), np.float32)
    if not samples.size or not np.isfinite(samples).all():
        raise InvalidRequestError("Sound must have at least one sample, and every sample must be finite.", stage="parse")
    return AudioSamples(samples=samples, sampling_rate=_whole_number(audio[1], "The sampling rate"))  # type: ignore[index]


def sound_header(audio: AudioSamples) -> MediaHeader:
    """Returns the facts of a sound that came decoded."""
    num_channels, num_samples = audio.samples.shape
    return MediaHeader(
        modality="audio",
        sampling_rate=audio.sampling_rate,
        num_channels=num_channels,
        num_samples=num_samples,
        duration_seconds=num_samples / audio.sampling_rate,
        decoded_bytes=audio.samples.nbytes,
    )
