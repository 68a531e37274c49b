"""Turns uint8 patches into what the vision tower expects, where the tower runs."""

from __future__ import annotations

import torch

from inset_qwen_vl.config import PixelConfig

__all__ = ["PatchNormalizer"]


class PatchNormalizer:
    """Normalises patches and brings them into the order of axes that the tower's first convolution takes.

    Source: transformers 5.19 image processors: rescaling is folded into mean and standard deviation.

    Args:
        config: How the patches were made.
        device: Where the patches are.
        dtype: Type of the result.
    """

    def __init__(self, config: PixelConfig, *, device: torch.device, dtype: torch.dtype) -> None:
        self._temporal = config.temporal_patch_size
        self._mean = torch.tensor(config.mean, device=device) * (1 / config.scale)
        self._std = torch.tensor(config.std, device=device) * (1 / config.scale)
        self._dtype = dtype

    def normalize(self, patches: torch.Tensor) -> torch.Tensor:
        """Returns ``(num_patches, 3 * temporal_patch_size * patch_size ** 2)``.

        Args:
            patches: ``(num_patches, patch_size, patch_size, 3)`` uint8 of still pictures, which fill their temporal patch, or
                ``(num_patches, temporal_patch_size, patch_size, patch_size, 3)`` of videos.
        """
        values = ((patches.float() - self._mean) / self._std).to(self._dtype)
        if values.dim() == 4:
            values = values[:, None].expand(-1, self._temporal, -1, -1, -1)
        return values.permute(0, 4, 1, 2, 3).flatten(1)
