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
        self._mean = (torch.tensor(config.mean, device=device) * (1 / config.scale)).view(3, 1, 1)
        self._std = (torch.tensor(config.std, device=device) * (1 / config.scale)).view(3, 1, 1)
        self._dtype = dtype

    def normalize(self, patches: torch.Tensor) -> torch.Tensor:
        """Returns ``(num_patches, 3 * temporal_patch_size * patch_size ** 2)``.

        Args:
            patches: ``(num_patches, patch_size, patch_size, 3)`` uint8 of still pictures, which fill their temporal patch, or
                ``(num_patches, temporal_patch_size, patch_size, patch_size, 3)`` of videos.
        """
        is_still = patches.dim() == 4
        pixels = (patches[:, None] if is_still else patches).permute(0, 1, 4, 2, 3).contiguous()  # moving bytes is cheaper than floats
        values = pixels.float().sub_(self._mean).div_(self._std).to(self._dtype)
        return values.expand(-1, self._temporal, -1, -1, -1).transpose(1, 2).flatten(1)
