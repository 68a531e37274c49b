"""Qwen2-VL, Qwen2.5-VL and Qwen3-VL as the worker sees them: adapters around the transformers modules."""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from typing import Any, ClassVar, Final, Self

import torch

from inset.api import (
    Checkpoint,
    EncodedItem,
    ItemTensors,
    LoadOptions,
    MultiModalFeature,
    PromptPositions,
    TransformersAdapter,
    build_module,
    load_weights,
    read_config,
)
from inset_qwen_vl.config import read_pixel_config
from inset_qwen_vl.positions import compute_positions, find_grid_runs, make_grid
from inset_qwen_vl.pruning import choose_kept
from inset_qwen_vl.vision import PatchNormalizer

__all__ = ["Qwen2VLAdapter", "Qwen3VLAdapter", "Qwen25VLAdapter"]

# Name at the beginning in a file -> in the module. Hub files of Qwen2-VL and Qwen2.5-VL predate the text model's place beside the tower.
_PREFIXES: Final = (("visual.", "model.visual."), ("model.", "model.language_model."))
_MODALITIES: Final = ("image", "video")


class Qwen2VLAdapter(TransformersAdapter):
    """Qwen2-VL.

    An image is ``pixel_values (num_patches, patch, patch, 3)`` uint8 with ``image_grid_thw (3,)`` int64, a video
    ``pixel_values_videos (num_patches, temporal, patch, patch, 3)`` uint8 with ``video_grid_thw (3,)`` int64.
    A video of which tokens are left out has ``num_kept (1,)`` int64 besides.
    """

    num_position_axes: ClassVar[int] = 3

    def __init__(self, module: Any, normalizers: Mapping[str, PatchNormalizer]) -> None:
        super().__init__(module)
        self._normalizers = normalizers
        self._vision_config = module.config.vision_config

    @classmethod
    def _classes(cls) -> tuple[type[Any], type[Any]]:
        """The transformers config and model class; imported when a checkpoint is loaded."""
        from transformers.models.qwen2_vl.configuration_qwen2_vl import Qwen2VLConfig
        from transformers.models.qwen2_vl.modeling_qwen2_vl import Qwen2VLForConditionalGeneration

        return Qwen2VLConfig, Qwen2VLForConditionalGeneration

    @classmethod
    def load(cls, checkpoint: Checkpoint, options: LoadOptions) -> Self:
        """Builds the transformers module and loads the safetensors weights; see `ModelAdapter.load`."""
        config_class, model_class = cls._classes()
        module = build_module(model_class, read_config(config_class, checkpoint), options)
        load_weights(module, checkpoint, options, candidates=_candidates)
        configs = {modality: read_pixel_config(checkpoint, modality) for modality in _MODALITIES}
        return cls(module, {m: PatchNormalizer(c, device=options.device, dtype=options.dtype) for m, c in configs.items()})

    @property
    def tokens_per_second(self) -> float | None:
        """What makes the time axis of videos run in seconds; None, because here it counts grids."""
        return None

    def encoder_batch_key(self, modality: str, item: ItemTensors) -> Hashable:
        """Returns the modality, and whether tokens are left out: grids of any size run together."""
        return modality, "num_kept" in item

    def encode(self, modality: str, items: Sequence[Mapping[str, torch.Tensor]]) -> Sequence[torch.Tensor]:
        """Returns ``(num_embeds, embed_size)`` embeddings of each item; see `ModelAdapter.encode`.

        A video of which tokens are left out runs alone: beside others its rows are rounded otherwise, and the choice is made from rows.
        """
        if len(items) > 1 and any("num_kept" in item for item in items):
            return [rows for item in items for rows in self.encode(modality, [item])]
        name = "pixel_values" if modality == "image" else "pixel_values_videos"
        pixels = self._normalizers[modality].normalize(torch.cat([item[name] for item in items]))
        grids = torch.stack([item[f"{modality}_grid_thw"] for item in items])
        return self._encode(modality, pixels, grids)

    def select_rows(self, modality: str, item: Mapping[str, torch.Tensor], rows: torch.Tensor) -> EncodedItem:
        """Returns all rows, or those of a video that are kept at their places in its grid; see `ModelAdapter.select_rows`."""
        if "num_kept" not in item:
            return EncodedItem(rows)
        steps, height, width = item["video_grid_thw"].tolist()
        kept = choose_kept(rows, num_steps=steps, num_kept=int(item["num_kept"]))
        grid = make_grid(
            (steps, height, width),
            merge_size=self._merge_size,
            seconds_per_step=float(item["second_per_grid_ts"]) if "second_per_grid_ts" in item else None,
            tokens_per_second=self.tokens_per_second,
        )
        return EncodedItem(rows[kept], grid.span()[:, kept.cpu()])

    @property
    def _merge_size(self) -> int:
        return int(self._vision_config.spatial_merge_size)

    def _encode(self, modality: str, pixels: torch.Tensor, grids: torch.Tensor) -> Sequence[torch.Tensor]:
        return list(self._features(modality, pixels, grids).pooler_output)

    def _features(self, modality: str, pixels: torch.Tensor, grids: torch.Tensor) -> Any:
        model = self.module.model
        encode = model.get_image_features if modality == "image" else model.get_video_features
        return encode(pixels, grids, return_dict=True)

    def get_positions(self, prompt_token_ids: Sequence[int], mm_features: Sequence[MultiModalFeature]) -> PromptPositions:
        """Returns positions along (t, h, w); see `ModelAdapter.get_positions`."""
        runs = find_grid_runs(mm_features, merge_size=self._merge_size, tokens_per_second=self.tokens_per_second)
        return compute_positions(len(prompt_token_ids), runs)


class Qwen25VLAdapter(Qwen2VLAdapter):
    """Qwen2.5-VL: a tower with window attention, and videos whose time axis runs in seconds. Items as in `Qwen2VLAdapter`."""

    @classmethod
    def _classes(cls) -> tuple[type[Any], type[Any]]:
        from transformers.models.qwen2_5_vl.configuration_qwen2_5_vl import Qwen2_5_VLConfig
        from transformers.models.qwen2_5_vl.modeling_qwen2_5_vl import Qwen2_5_VLForConditionalGeneration

        return Qwen2_5_VLConfig, Qwen2_5_VLForConditionalGeneration

    @property
    def tokens_per_second(self) -> float | None:
        """What makes the time axis of videos run in seconds."""
        return float(self._vision_config.tokens_per_second)


class Qwen3VLAdapter(Qwen2VLAdapter):
    """Qwen3-VL: the first decoder layers receive features of their own from the tower. Items as in `Qwen2VLAdapter`."""

    @classmethod
    def _classes(cls) -> tuple[type[Any], type[Any]]:
        from transformers.models.qwen3_vl.configuration_qwen3_vl import Qwen3VLConfig
        from transformers.models.qwen3_vl.modeling_qwen3_vl import Qwen3VLForConditionalGeneration

        return Qwen3VLConfig, Qwen3VLForConditionalGeneration

    @property
    def embed_size(self) -> int:
        """Width of an encoder row: the embedding, and one feature for each of the first decoder layers."""
        return self.hidden_size * (1 + len(self._vision_config.deepstack_visual_indexes))

    def _encode(self, modality: str, pixels: torch.Tensor, grids: torch.Tensor) -> Sequence[torch.Tensor]:
        features = self._features(modality, pixels, grids)
        return [torch.cat(rows, dim=1) for rows in zip(features.pooler_output, *features.deepstack_features, strict=True)]

    def forward(
        self,
        inputs_embeds: torch.Tensor,
        position_ids: torch.Tensor,
        *,
        layer_embeds: torch.Tensor | None = None,
    ) -> torch.Tensor:
        """Runs the text model over a packed batch; see `ModelAdapter.forward`."""
        is_item = features = None
        if layer_embeds is not None:
            is_item = layer_embeds.new_ones(inputs_embeds.shape[:2], dtype=torch.bool)  # adding zero elsewhere changes nothing
            features = torch.split(layer_embeds, self.hidden_size, dim=1)
        return self.run_text_model(inputs_embeds, position_ids, visual_pos_masks=is_item, deepstack_visual_embeds=features)


def _candidates(name: str) -> Sequence[str]:
    """Returns the names that a tensor of a file can have in the module."""
    return (name, *(new + name.removeprefix(old) for old, new in _PREFIXES if name.startswith(old)))
