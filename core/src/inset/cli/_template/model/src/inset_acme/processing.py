"""From images to placeholders and uint8 pixels."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from inset.api import (
    JSON,
    DummyInputsBuilder,
    InvalidRequestError,
    ItemPlan,
    ItemTensors,
    MediaHeader,
    MultiModalProcessor,
    PlaceholderContent,
    ProcessingContext,
    ProcessingInfo,
    PromptReplacement,
    PromptUpdate,
    resize_peak_bytes,
)

from inset_acme.config import ImageConfig, read_image_config

if TYPE_CHECKING:
    from inset.api import ImagePixels

__all__ = ["AcmeDummyInputs", "AcmeProcessingInfo", "AcmeProcessor"]


class AcmeProcessingInfo(ProcessingInfo):
    """Facts of a checkpoint: every image becomes a square of one size."""

    def __init__(self, context: ProcessingContext) -> None:
        super().__init__(context)
        self.image = read_image_config(context.checkpoint)

    def get_supported_mm_limits(self) -> Mapping[str, int | None]:
        """Images, as many as the context holds."""
        return {"image": None}

    def get_placeholder_text(self, modality: str, item_index: int) -> str:
        """Returns the text of the marker."""
        return self.tokenizer.id_to_token(self.image.token_id) or ""

    def max_tokens_per_item(self, modality: str) -> int:
        """Returns the prompt tokens of any image: all take the same."""
        return self.image.num_patches


class AcmeProcessor(MultiModalProcessor):
    """An item is ``pixel_values (edge, edge, 3)`` uint8 RGB, to be normalised where the vision tower runs."""

    @property
    def image(self) -> ImageConfig:
        """What the checkpoint says about images."""
        assert isinstance(self.info, AcmeProcessingInfo)
        return self.info.image

    def plan(self, modality: str, header: MediaHeader, *, options: Mapping[str, JSON]) -> ItemPlan:
        """Returns what an image will become; nothing is decoded for that."""
        if not header.height or not header.width:
            raise InvalidRequestError("The image has no size in its header.", stage="plan")
        edge, num_patches = self.image.edge, self.image.num_patches
        return ItemPlan(
            num_tokens=num_patches,
            num_embeds=num_patches,
            tensor_bytes=3 * edge * edge,
            peak_bytes=resize_peak_bytes((header.height, header.width), (edge, edge)) + 3 * edge * edge,
        )

    def prompt_updates(self, plans: Mapping[str, Sequence[ItemPlan]]) -> Sequence[PromptUpdate]:
        """Returns the replacement of each marker by as many tokens as its image has embeddings."""
        token_id = self.image.token_id
        contents = [PlaceholderContent([token_id] * plan.num_tokens) for plan in plans["image"]]
        return [PromptReplacement(modality="image", target=[token_id], contents=contents)]

    def materialize(self, modality: str, decoded: ImagePixels, *, plan: ItemPlan, options: Mapping[str, JSON]) -> ItemTensors:
        """Returns the image in the size that the vision tower takes.

        Args:
            modality: ``image``.
            decoded: ``(height, width, 3)`` uint8 RGB.
            plan: What `plan` has promised.
            options: Processor options; this family has none.
        """
        raise NotImplementedError("Write AcmeProcessor.materialize: pixel_values (edge, edge, 3) uint8, an array of their own.")


class AcmeDummyInputs(DummyInputsBuilder):
    """The image that takes the most tokens; here any."""

    def get_largest_header(self, modality: str) -> MediaHeader:
        """Returns the header of that image."""
        assert isinstance(self.info, AcmeProcessingInfo)
        edge = self.info.image.edge
        return MediaHeader(modality="image", width=edge, height=edge, decoded_bytes=3 * edge * edge)
