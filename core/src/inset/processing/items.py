"""The items of one modality of one request, in two views: as they were given, and decoded."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Generic, Self, TypeAlias, TypeVar

from inset.errors import InvalidRequestError, InvariantError
from inset.media.decoded import AudioSamples, ImagePixels, VideoFrames
from inset.media.ref import MediaRef
from inset.processing.given_media import image_header, image_pixels, sound_header, video_header

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from inset.media.header import MediaHeader

__all__ = ["AudioProcessorItems", "ImageProcessorItems", "MediaItems", "ModalityDataItems", "VideoProcessorItems", "VideoView"]

T = TypeVar("T")

VideoView: TypeAlias = "NDArray[np.uint8] | tuple[NDArray[np.uint8], dict[str, Any]]"
"""Frames alone, or frames and their metadata."""


class ModalityDataItems(ABC):
    """The items of one modality. Selections keep the class, the items as given, and their original positions.

    Source: the parse layer of lazy media decode.
    """

    modality: str

    def __init__(self, items: Sequence[object], *, original_indices: Sequence[int] | None = None) -> None:
        self._items = list(items)
        self._original_indices = tuple(range(len(self._items)) if original_indices is None else original_indices)

    def __len__(self) -> int:
        return len(self._items)

    @abstractmethod
    def get(self, index: int) -> object:
        """Returns one item, decoded."""

    def get_raw(self, index: int) -> object:
        """Returns one item as it is stored; a `MediaRef` where the media was fetched. By default the same as `get`."""
        return self.get(index)

    def get_original_index(self, index: int) -> int:
        """Returns the position of an item in the request, also in a selection of a selection."""
        return self._original_indices[index]

    def select(self, indices: Sequence[int]) -> Self:
        """Returns these items alone, without parsing, checking or decoding anything again."""
        selected = object.__new__(type(self))
        selected.__dict__.update(self.__dict__)
        selected.__dict__["_items"] = [self._items[index] for index in indices]
        selected.__dict__["_original_indices"] = tuple(self._original_indices[index] for index in indices)
        return selected


class MediaItems(ModalityDataItems, Generic[T]):
    """Items that are media: references, or objects that were decoded before they came here, or None where only a uuid was given."""

    def get_raw(self, index: int) -> object:
        """Returns one item as it is stored; never decodes."""
        return self._items[index]

    def is_given(self, index: int) -> bool:
        """Whether there is media, and not only its uuid."""
        return self._items[index] is not None

    def get_header(self, index: int) -> MediaHeader:
        """Returns what is known about one item without decoding it."""
        item = self._items[index]
        return item.header if isinstance(item, MediaRef) else self._header(item)

    def decode(self, index: int, *, keep: bool = True) -> T:
        """Returns one item decoded, in the one form that `MultiModalProcessor.materialize` takes.

        Args:
            index: Which one.
            keep: Whether a reference keeps what it decodes to, as in `MediaRef.decode`.
        """
        item = self._items[index]
        if item is None:
            raise InvariantError(f"{self.modality} {self.get_original_index(index)} has no media here; it cannot be decoded.")
        return item.decode(keep=keep) if isinstance(item, MediaRef) else self._normalize(item)

    def get(self, index: int) -> object:
        """Returns one item decoded."""
        return self.decode(index)

    def release(self) -> None:
        """Lets go of all media: releases the references, and forgets them and what came decoded."""
        for item in self._items:
            if isinstance(item, MediaRef):
                item.release()
        self._items = [None] * len(self._items)

    @abstractmethod
    def _header(self, item: object) -> MediaHeader:
        """The header of an item that came decoded."""

    @abstractmethod
    def _normalize(self, item: object) -> T:
        """An item that came decoded, in the form that decoding gives."""


class ImageProcessorItems(MediaItems[ImagePixels]):
    """Images; decoded to ``(height, width, 3)`` uint8 RGB."""

    modality = "image"

    def decode(self, index: int, *, keep: bool = True) -> ImagePixels:
        """Returns one image as RGB, also where a request had it decoded to another mode."""
        pixels = super().decode(index, keep=keep)
        return pixels if pixels.shape[-1] == 3 else image_pixels(pixels)

    def get_image_size(self, index: int) -> tuple[int, int]:
        """Returns (height, width) of one image in pixels, without decoding it."""
        header = self.get_header(index)
        if header.height is None or header.width is None:
            raise InvariantError(f"image {self.get_original_index(index)} has no size in its header.")
        return header.height, header.width

    def _header(self, item: object) -> MediaHeader:
        return image_header(item)

    def _normalize(self, item: object) -> ImagePixels:
        return image_pixels(item)


class VideoProcessorItems(MediaItems[VideoFrames]):
    """Videos; decoded to `VideoFrames`. `get` shows frames alone, or with their metadata where the family needs it."""

    modality = "video"

    def __init__(self, items: Sequence[object], *, needs_metadata: bool = False) -> None:
        super().__init__(items)
        self._needs_metadata = needs_metadata

    def get(self, index: int) -> VideoView:
        """Returns the frames of one video, or (frames, metadata)."""
        frames = self.get_frames(index)
        return (frames, self.get_metadata(index)) if self._needs_metadata else frames

    def get_frames(self, index: int) -> NDArray[np.uint8]:
        """Returns ``(num_frames, height, width, 3)`` uint8 RGB, whatever `get` shows."""
        return self.decode(index).frames

    def get_metadata(self, index: int) -> dict[str, Any]:
        """Returns where the frames of one video lay in it; its siblings are not decoded."""
        video = self.decode(index)
        return {
            "fps": video.fps,
            "duration": video.duration_seconds,
            "total_num_frames": video.total_num_frames,
            "frames_indices": list(video.frame_indices),
            "height": video.frames.shape[1],
            "width": video.frames.shape[2],
        }

    @property
    def metadata(self) -> list[dict[str, Any]]:
        """The metadata of all videos; decodes all of them."""
        return [self.get_metadata(index) for index in range(len(self))]

    def get_num_frames(self, index: int) -> int:
        """Returns how many frames one video has after sampling; decodes it."""
        return len(self.get_frames(index))

    def get_frame_size(self, index: int) -> tuple[int, int]:
        """Returns (height, width) of one video's frames in pixels; decodes it."""
        _, height, width, _ = self.get_frames(index).shape
        return height, width

    def _header(self, item: object) -> MediaHeader:
        return video_header(_expect(item, VideoFrames))

    def _normalize(self, item: object) -> VideoFrames:
        return _expect(item, VideoFrames)


class AudioProcessorItems(MediaItems[AudioSamples]):
    """Sounds; decoded to `AudioSamples`."""

    modality = "audio"

    def get_audio_length(self, index: int) -> int:
        """Returns the samples per channel of one sound; decodes it."""
        return int(self.decode(index).samples.shape[-1])

    def _header(self, item: object) -> MediaHeader:
        return sound_header(_expect(item, AudioSamples))

    def _normalize(self, item: object) -> AudioSamples:
        return _expect(item, AudioSamples)


def _expect(item: object, kind: type[T]) -> T:
    if not isinstance(item, kind):
        raise InvalidRequestError(f"Expected {kind.__name__}, not {type(item).__name__}.", stage="parse")
    return item
