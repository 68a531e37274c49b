"""From images and videos to placeholders and uint8 patches, for all families."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from inset.api import (
    JSON,
    ConfigError,
    InvalidRequestError,
    ItemPlan,
    ItemTensors,
    MediaHeader,
    MultiModalProcessor,
    PromptReplacement,
    PromptUpdate,
    VideoFrames,
)
from inset_qwen_vl.config import apply_options
from inset_qwen_vl.info import Qwen2VLProcessingInfo
from inset_qwen_vl.patches import cut_image, cut_video

if TYPE_CHECKING:
    import torch

    from inset.api import ImagePixels

__all__ = ["QwenVLProcessor"]


class QwenVLProcessor(MultiModalProcessor):
    """Qwen2-VL, Qwen2.5-VL and Qwen3-VL.

    An image becomes ``pixel_values (num_patches, patch_size, patch_size, 3)`` uint8 RGB and ``image_grid_thw (3,)`` int64; a video becomes
    ``pixel_values_videos (num_patches, temporal_patch_size, patch_size, patch_size, 3)`` uint8 RGB and ``video_grid_thw (3,)`` int64. They
    are normalised where the vision tower runs. Where tokens of a video are left out, ``num_kept (1,)`` int64 says how many stay.

    Source: transformers 5.24 ``Qwen2VLProcessor``, ``Qwen2_5_VLProcessor`` and ``Qwen3VLProcessor``.
    """

    needs_token_types: ClassVar[bool] = True

    @property
    def facts(self) -> Qwen2VLProcessingInfo:
        """`info`, with its own type."""
        assert isinstance(self.info, Qwen2VLProcessingInfo)
        return self.info

    def plan(self, modality: str, header: MediaHeader, *, options: Mapping[str, JSON]) -> ItemPlan:
        """Returns the plan of an item: exact for images; a video can still lose frames that cannot be decoded."""
        return self.facts.plan_item(header, apply_options(self.facts.pixels[modality], options))

    def plan_embeds(self, modality: str, embeds: np.ndarray[Any, Any], *, fields: Mapping[str, np.ndarray[Any, Any]]) -> ItemPlan:
        """Returns the plan of finished embeddings with their grid; see `MultiModalProcessor.plan_embeds`.

        Args:
            modality: ``image`` or ``video``.
            embeds: ``(num_embeds, embed_size)`` float32.
            fields: ``image_grid_thw`` or ``video_grid_thw``, ``(3,)`` patches along (t, h, w); for videos of Qwen2.5-VL
                ``second_per_grid_ts``, for those of Qwen3-VL ``timestamps``.
        """
        grid = self._read_grid(f"{modality}_grid_thw", fields, num_embeds=len(embeds))
        details = dict(self.facts.describe_embeds(fields, grid[0])) if modality == "video" else {}
        layout = self.facts.lay_out(len(embeds), details)
        return ItemPlan(
            num_tokens=layout.num_tokens,
            num_embeds=len(embeds),
            is_embed=layout.is_embed,
            grid=grid,
            tensor_bytes=embeds.nbytes,
            peak_bytes=embeds.nbytes,
            details=details,
        )

    def _read_grid(self, name: str, fields: Mapping[str, np.ndarray[Any, Any]], *, num_embeds: int) -> tuple[int, int, int]:
        values = fields.get(name)
        if values is None or values.shape != (3,) or not np.issubdtype(values.dtype, np.integer):
            raise InvalidRequestError(f"Embeddings need {name!r}: three whole numbers (t, h, w) for each item, in patches.", stage="plan")
        steps, height, width = (int(value) for value in values)
        merge_size = self.facts.pixels["image"].merge_size
        if min(steps, height, width) < 1 or height % merge_size or width % merge_size:
            raise InvalidRequestError(f"{name} is {(steps, height, width)}; h and w must be multiples of {merge_size}.", stage="plan")
        if (expected := self.facts.count_embeds((steps, height, width))) != num_embeds:
            raise InvalidRequestError(
                f"{name} {(steps, height, width)} makes {expected} embeddings, and there are {num_embeds}.", stage="plan"
            )
        return steps, height, width

    def prompt_updates(self, plans: Mapping[str, Sequence[ItemPlan]]) -> Sequence[PromptUpdate]:
        """Returns the replacement of each item's one token by those that stand for its embeddings."""
        facts = self.facts
        return [
            PromptReplacement(
                modality=modality,
                target=[facts.prompt.token_of(modality)],
                contents=[facts.make_content(modality, plan.num_embeds, plan.details) for plan in items],
            )
            for modality, items in plans.items()
        ]

    def materialize(self, modality: str, decoded: ImagePixels | VideoFrames, *, plan: ItemPlan, options: Mapping[str, JSON]) -> ItemTensors:
        """Returns the patches and the grid of an item, resized as the checkpoint's processor does it."""
        config = apply_options(self.facts.pixels[modality], options)
        assert plan.grid is not None, "plans of this family have a grid"
        size = (plan.grid[1] * config.patch_size, plan.grid[2] * config.patch_size)
        grid = np.array(plan.grid, np.int64)
        if isinstance(decoded, VideoFrames):
            seconds = plan.details.get("second_per_grid_ts")
            patches = cut_video(decoded.frames, size, config)
            tensors: dict[str, np.ndarray[Any, Any]] = {"pixel_values_videos": patches, "video_grid_thw": grid}
            if seconds is not None:
                tensors["second_per_grid_ts"] = np.array([seconds], np.float64)
            if "num_kept" in plan.details:
                tensors["num_kept"] = np.array([plan.num_embeds], np.int64)
            return tensors
        return {"pixel_values": cut_image(decoded, size, config), "image_grid_thw": grid}

    def to_transformers(self, modality: str, items: Sequence[ItemTensors]) -> Mapping[str, torch.Tensor]:
        """Returns normalised ``pixel_values (num_patches, values of a patch)`` or ``pixel_values_videos`` float32, with the grids.

        Raises:
            ConfigError: Tokens of a video are left out, which transformers does not know.
        """
        if any("num_kept" in item for item in items):
            raise ConfigError("transformers cannot leave out tokens of a video; process the prompt without video_pruning_rate.")
        import torch

        from inset_qwen_vl.vision import PatchNormalizer

        name, grid = ("pixel_values", "image_grid_thw") if modality == "image" else ("pixel_values_videos", "video_grid_thw")
        normalizer = PatchNormalizer(self.facts.pixels[modality], device=torch.device("cpu"), dtype=torch.float32)
        inputs = {
            name: torch.cat([normalizer.normalize(torch.tensor(item[name])) for item in items]),
            grid: torch.tensor(np.stack([item[grid] for item in items])),
        }
        seconds = [item["second_per_grid_ts"] for item in items if "second_per_grid_ts" in item]
        if seconds:
            inputs["second_per_grid_ts"] = torch.tensor(np.concatenate(seconds), dtype=torch.float32)
        return inputs
