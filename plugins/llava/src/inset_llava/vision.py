"""Normalises pixels where the vision tower runs."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch

__all__ = ["PixelNormalizer"]


class PixelNormalizer:
    """Turns uint8 pixels into what the vision tower expects.

    Source: transformers 5.19 `CLIPImageProcessor`: rescaling is folded into mean and standard deviation.

    Args:
        preprocessor_config: The checkpoint's ``preprocessor_config.json``.
        device: Where the pixels are.
        dtype: Type of the result.
    """

    def __init__(self, preprocessor_config: Mapping[str, Any], *, device: torch.device, dtype: torch.dtype) -> None:
        scale = float(preprocessor_config.get("rescale_factor", 1 / 255)) if preprocessor_config.get("do_rescale", True) else 1.0
        normalizes = preprocessor_config.get("do_normalize", True)
        mean = preprocessor_config.get("image_mean", [0.48145466, 0.4578275, 0.40821073]) if normalizes else [0.0] * 3
        std = preprocessor_config.get("image_std", [0.26862954, 0.26130258, 0.27577711]) if normalizes else [1.0] * 3
        self._mean = torch.tensor(mean, device=device) * (1 / scale)
        self._std = torch.tensor(std, device=device) * (1 / scale)
        self._dtype = dtype

    def normalize(self, pixels: torch.Tensor) -> torch.Tensor:
        """Returns ``(num_images, 3, height, width)`` of ``(num_images, height, width, 3)`` uint8 RGB pixels."""
        normalized = (pixels.float() - self._mean) / self._std
        return normalized.permute(0, 3, 1, 2).to(self._dtype).contiguous()
