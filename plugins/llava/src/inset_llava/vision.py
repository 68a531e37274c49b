"""What happens around the vision tower: pixels are normalised, and layers behind the features dropped."""

from __future__ import annotations

from typing import Any

import torch

from inset_llava.config import ImageConfig

__all__ = ["PixelNormalizer", "drop_unused_layers"]


class PixelNormalizer:
    """Turns uint8 pixels into what the vision tower expects.

    Source: transformers 5.19 `CLIPImageProcessor`: rescaling is folded into mean and standard deviation.

    Args:
        image: What the checkpoint says about its images.
        device: Where the pixels are.
        dtype: Type of the result.
    """

    def __init__(self, image: ImageConfig, *, device: torch.device, dtype: torch.dtype) -> None:
        self._mean = torch.tensor(image.mean, device=device) * (1 / image.scale)
        self._std = torch.tensor(image.std, device=device) * (1 / image.scale)
        self._dtype = dtype

    def normalize(self, pixels: torch.Tensor) -> torch.Tensor:
        """Returns ``(num_images, 3, height, width)`` of ``(num_images, height, width, 3)`` uint8 RGB pixels."""
        normalized = (pixels.float() - self._mean) / self._std
        return normalized.permute(0, 3, 1, 2).to(self._dtype).contiguous()


def drop_unused_layers(module: Any) -> None:
    """Takes the vision tower's layers behind the last hidden state that is used out of a LLaVA module.

    Feature layers are counted from the front afterwards, which names the same states. Other towers than CLIP and SigLIP are left whole,
    because they may treat their last hidden state in a way of their own.
    """
    config = module.config
    if config.vision_config.model_type not in {"clip_vision_model", "siglip_vision_model"}:
        return
    (layers,) = [part for name, part in module.model.vision_tower.named_modules() if name.endswith("encoder.layers")]
    given = config.vision_feature_layer
    used = [layer if layer >= 0 else len(layers) + 1 + layer for layer in ([given] if isinstance(given, int) else given)]
    del layers[max(1, *used) :]
    config.vision_config.num_hidden_layers = len(layers)
    config.vision_feature_layer = used[0] if isinstance(given, int) else used
