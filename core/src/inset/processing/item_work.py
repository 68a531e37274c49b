"""The work that the media pool does for one item: decode, check against the plan, materialise."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from inset.cache.values import ProcessedItem
from inset.errors import InsetError, InvariantError, MediaDecodeError, OverloadedError
from inset.media.decoded import VideoFrames
from inset.processing.given_media import video_header
from inset.processing.items import MediaItems

if TYPE_CHECKING:
    from inset.inputs import ItemPlan, ItemTensors
    from inset.media.budget import RequestBudget
    from inset.processing.item_state import ItemState
    from inset.processing.processor import MultiModalProcessor

__all__ = ["ItemProcessing"]


class ItemProcessing:
    """Processes the items of one request in the threads of the media pool.

    Attributes:
        stage_seconds: (stage, modality) -> seconds spent in ``decode`` and ``materialize``, all items of this request together.
    """

    def __init__(self, processor: MultiModalProcessor, budget: RequestBudget | None) -> None:
        self._processor = processor
        self._budget = budget
        self._lock = threading.Lock()
        self.stage_seconds: dict[tuple[str, str], float] = {}

    @contextmanager
    def reserve(self, item: ItemState) -> Iterator[None]:
        """Sets the item's decoded bytes or its largest intermediate aside, whichever is more, while it is processed.

        Raises:
            TooLargeError: The item or the request would hold more than it may.
            OverloadedError: The process holds too much right now.
        """
        if self._budget is None:
            yield
            return
        header = _media(item).get_header(item.index)
        needed = max(header.decoded_bytes, 0 if item.plan is None else item.plan.peak_bytes)
        with self._budget.reserve_decoded(needed, peak_bytes=header.peak_bytes, modality=item.modality, item_index=item.original_index):
            yield

    def process(self, item: ItemState) -> ProcessedItem:
        """Returns the processed item; its errors do not say yet which item of which request it was.

        Raises:
            MediaDecodeError: The media is damaged, or is not what its header says.
            OverloadedError: Memory ran out.
            InvariantError: The family's code failed on good media.
        """
        plan = item.plan
        if plan is None:
            raise InvariantError(f"{item.modality} {item.original_index} is processed before it is planned.")
        with self._stage("decode", item.modality):
            decoded = self._decode(item)
        with self._stage("materialize", item.modality):
            plan = self._settle(item, decoded, plan)
            tensors = self._processor.materialize(item.modality, decoded, plan=plan, options=item.options)
        return ProcessedItem(plan, _freeze(tensors))

    def _decode(self, item: ItemState) -> Any:
        try:
            # Not kept: the reference lives as long as the request may have to be processed again, the reservation only for this work.
            return _media(item).decode(item.index, keep=False)
        except (InsetError, MemoryError):
            raise
        except Exception as error:
            raise MediaDecodeError(
                f"It could not be decoded ({type(error).__name__}): the data is damaged or no {item.modality}."
            ) from error

    def _settle(self, item: ItemState, decoded: object, plan: ItemPlan) -> ItemPlan:
        """The exact plan, once the media is decoded."""
        header = _media(item).get_header(item.index)
        shape = decoded.frames.shape[1:3] if isinstance(decoded, VideoFrames) else getattr(decoded, "shape", ())[:2]
        if item.modality != "audio" and shape and shape != (header.height, header.width):
            raise MediaDecodeError(
                f"It decodes to {shape[1]}x{shape[0]} pixels, and its header says {header.width}x{header.height}.", stage="decode"
            )
        if plan.is_exact:
            return plan
        if isinstance(decoded, VideoFrames):
            header = video_header(decoded)
        return replace(self._processor.plan(item.modality, header, options=item.options), is_exact=True)

    @contextmanager
    def _stage(self, stage: str, modality: str) -> Iterator[None]:
        started = time.perf_counter()
        try:
            yield
        except InsetError as error:
            raise error.locate(stage=stage) from error.__cause__
        except MemoryError as error:
            raise OverloadedError(f"Memory ran out in the stage {stage!r} of one {modality}.", stage=stage) from error
        except Exception as error:
            raise InvariantError(
                f"The processor failed on good media in the stage {stage!r}: {type(error).__name__}.", stage=stage
            ) from error
        finally:
            with self._lock:
                key = (stage, modality)
                self.stage_seconds[key] = self.stage_seconds.get(key, 0.0) + time.perf_counter() - started


def _media(item: ItemState) -> MediaItems[Any]:
    if not isinstance(item.items, MediaItems):
        raise InvariantError(f"{item.modality} {item.original_index} is no media.")
    return item.items


def _freeze(tensors: ItemTensors) -> Mapping[str, Any]:
    """Makes the arrays read-only: caches hand the same ones to every request."""
    for array in tensors.values():
        array.flags.writeable = False
    return tensors
