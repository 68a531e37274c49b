"""shapes-llava: a CLIP tower, a projector, and Llama. Every picture is resized to one square."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from transformers import CLIPVisionConfig, CLIPVisionModel, LlamaConfig, LlavaConfig, LlavaForConditionalGeneration

from data import Item
from families.base import (
    ATTENTION,
    BOS,
    EOS,
    IMAGE,
    MEAN,
    PAD,
    STD,
    TEXT,
    Family,
    Placed,
    Reading,
    normalise,
    position_along,
    run_language_model,
)
from patch_heads import LABEL_SIZES, PLACE_SIZES
from shards import PATCH, SQUARE

NUM_PATCHES = (SQUARE // PATCH) ** 2
VISION = CLIPVisionConfig(
    hidden_size=192,
    intermediate_size=576,
    num_hidden_layers=5,
    num_attention_heads=6,
    image_size=SQUARE,
    patch_size=PATCH,
    projection_dim=192,
    hidden_act="gelu",
    attention_dropout=0.0,
)


class Llava(Family):
    """The family of shapes-llava."""

    name = "shapes-llava"
    architecture = "LlavaForConditionalGeneration"
    media_tokens = (IMAGE,)
    patches_per_token = 1
    special = ("<pad>", "<s>", "</s>", "<image>", "<|system|>", "<|user|>", "<|assistant|>")
    vocab_size = 640
    image = "<image>"
    label_sizes = {**LABEL_SIZES, **PLACE_SIZES}  # noqa: RUF012 - constant
    pictures = "squares"

    def config(self) -> LlavaConfig:
        """Returns the configuration of the model: about 4 million parameters."""
        return LlavaConfig(
            vision_config=VISION.to_dict(),
            text_config=LlamaConfig(vocab_size=self.vocab_size, **TEXT).to_dict(),
            image_token_index=IMAGE,
            image_seq_length=NUM_PATCHES,
            vision_feature_layer=-1,
            vision_feature_select_strategy="default",
            tie_word_embeddings=False,
            pad_token_id=PAD,
            bos_token_id=BOS,
            eos_token_id=EOS,
        )

    def new_tower(self) -> nn.Module:
        tower: nn.Module = CLIPVisionModel(VISION)
        tower.set_attn_implementation(ATTENTION)  # type: ignore[operator]
        return tower

    def new_model(self) -> Any:
        config = self.config()
        config.text_config.initializer_range = 0.05
        model = LlavaForConditionalGeneration(config)
        model.set_attn_implementation(ATTENTION)
        model.config.text_config.initializer_range = 0.02
        return model

    def tower_of(self, model: Any) -> nn.Module:
        tower: nn.Module = model.model.vision_tower
        return tower

    def look(self, tower: Any, items: Sequence[Item]) -> Tensor:
        pixels = normalise(torch.from_numpy(np.concatenate([item.frames for item in items]))).permute(0, 3, 1, 2).contiguous()
        features: Tensor = tower(pixel_values=pixels).last_hidden_state[:, 1:]
        return features.flatten(0, 1)

    def project(self, model: Any, features: Tensor) -> Tensor:
        embeddings: Tensor = model.model.multi_modal_projector(features)
        return embeddings

    def read(self, model: Any, embeds: Tensor, mask: Tensor, position_ids: Tensor) -> Reading:
        return run_language_model(model.model.language_model, embeds, mask, position_ids[0])

    def place(self, item: Item, start: int) -> Placed:
        return Placed((IMAGE,) * NUM_PATCHES, position_along(NUM_PATCHES, start), start + NUM_PATCHES, np.zeros(NUM_PATCHES, np.int64))

    def arrange(self, labels: NDArray[np.int64]) -> NDArray[np.int64]:
        return labels.ravel()

    def files(self) -> dict[str, dict[str, object]]:
        square = {"height": SQUARE, "width": SQUARE}
        preprocessor = {
            "image_processor_type": "CLIPImageProcessor",
            "do_convert_rgb": True,
            "do_resize": True,
            "size": square,
            "resample": 3,
            "do_center_crop": False,
            "crop_size": square,
            "do_rescale": True,
            "rescale_factor": 1 / 255,
            "do_normalize": True,
            "image_mean": list(MEAN),
            "image_std": list(STD),
        }
        processor = {
            "processor_class": "LlavaProcessor",
            "image_token": self.image,
            "patch_size": PATCH,
            "vision_feature_select_strategy": "default",
            "num_additional_image_tokens": 1,
        }
        return {"preprocessor_config.json": preprocessor, "processor_config.json": processor}
