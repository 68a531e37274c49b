"""The largest items that a model takes, made of nothing: for measuring memory at start and for warming up."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, Any

from inset.cache.values import ProcessedItem
from inset.errors import InvariantError
from inset.media.decoded import VideoFrames

if TYPE_CHECKING:
    from inset.inputs import ItemPlan
    from inset.media.header import MediaHeader
    from inset.processing.info import ProcessingInfo
    from inset.processing.processor import MultiModalProcessor

__all__ = ["DummyInputsBuilder"]


class DummyInputsBuilder(ABC):
    """Makes the largest item of each modality, as a header, as a plan and as processed tensors."""

    def __init__(self, info: ProcessingInfo) -> None:
        self.info = info

    @abstractmethod
    def get_largest_header(self, modality: str) -> MediaHeader:
        """Returns the header of the item that gives the most embeds under the checkpoint's own limits."""

    def get_dummy_media(self, modality: str, header: MediaHeader) -> Any:
        """Returns decoded media of a header: a black image or black frames; a family with other media overrides this."""
        import numpy as np

        if modality not in ("image", "video") or header.width is None or header.height is None:
            raise InvariantError(f"{type(self).__name__} makes no dummy {modality}.")
        if modality == "image":
            return np.zeros((header.height, header.width, 3), np.uint8)
        num_frames = header.num_frames or 1
        return VideoFrames(
            frames=np.zeros((num_frames, header.height, header.width, 3), np.uint8),
            total_num_frames=header.total_num_frames or num_frames,
            fps=header.fps or 1.0,
            duration_seconds=header.duration_seconds or float(num_frames),
            frame_indices=header.frame_indices or tuple(range(num_frames)),
            timestamps_seconds=header.timestamps_seconds or tuple(index / (header.fps or 1.0) for index in range(num_frames)),
        )

    def get_largest_plan(self, processor: MultiModalProcessor, modality: str) -> ItemPlan:
        """Returns the plan of the largest item."""
        return processor.plan(modality, self.get_largest_header(modality), options=self._options(modality))

    def make_largest_item(self, processor: MultiModalProcessor, modality: str) -> ProcessedItem:
        """Returns the largest item, really processed; its tensors have the shapes that the encoder will see."""
        header = self.get_largest_header(modality)
        options = self._options(modality)
        plan = processor.plan(modality, header, options=options)
        tensors = processor.materialize(modality, self.get_dummy_media(modality, header), plan=plan, options=options)
        return ProcessedItem(plan, tensors)

    def _options(self, modality: str) -> dict[str, Any]:
        return dict(self.info.scope_processor_kwargs({})[modality])
