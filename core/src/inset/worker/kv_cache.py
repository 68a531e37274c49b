"""Keys and values of all sequences, in blocks of a fixed number of positions."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, NamedTuple

import numpy as np
import torch

from inset.modeling.interfaces import AttentionLayerSpec

__all__ = ["LayerKV", "PagedKVCache", "bytes_per_token", "zeroed"]

_INTEGER_OF_SIZE: Final = {2: np.int16, 4: np.int32}


def bytes_per_token(layers: Sequence[AttentionLayerSpec], dtype: torch.dtype) -> int:
    """Returns what the keys and values of one position take in all layers, in bytes."""
    return sum(2 * layer.num_kv_heads * layer.head_dim for layer in layers) * dtype.itemsize


def zeroed(shape: Sequence[int], dtype: torch.dtype, device: torch.device) -> torch.Tensor:
    """Returns a tensor of zeros; on the CPU the system supplies its pages when they are first written.

    Cache memory must be zero, not merely unused: padding is masked, but a masked NaN would still spoil the sum.
    """
    if device.type != "cpu":
        return torch.zeros(tuple(shape), dtype=dtype, device=device)
    return torch.from_numpy(np.zeros(tuple(shape), dtype=_INTEGER_OF_SIZE[dtype.itemsize])).view(dtype)


class LayerKV(NamedTuple):
    """Keys and values of one layer: two tensors of one shape."""

    key: torch.Tensor
    value: torch.Tensor


class PagedKVCache:
    """One ``(num_blocks * block_size, num_kv_heads, head_dim)`` tensor of keys and one of values for each layer.

    Position p of a sequence lies in slot ``block_ids[p // block_size] * block_size + p % block_size``. Which blocks belong to whom is
    the scheduler's business.
    """

    def __init__(
        self, layers: Sequence[AttentionLayerSpec], *, num_blocks: int, block_size: int, dtype: torch.dtype, device: torch.device
    ) -> None:
        self.layers = tuple(layers)
        self.block_size = block_size
        self.num_blocks = num_blocks
        self.dtype = dtype
        self.device = device
        self._slots = [
            LayerKV(*(zeroed((num_blocks * block_size, s.num_kv_heads, s.head_dim), dtype, device) for _ in range(2))) for s in self.layers
        ]

    def write(self, layer_idx: int, slots: torch.Tensor, key: torch.Tensor, value: torch.Tensor) -> None:
        """Stores ``(num_tokens, num_kv_heads, head_dim)`` keys and values in ``(num_tokens,)`` int64 slots."""
        layer = self._slots[layer_idx]
        layer.key.index_copy_(0, slots, key)
        layer.value.index_copy_(0, slots, value)

    def wipe(self, slots: torch.Tensor) -> None:
        """Makes ``(num_tokens,)`` int64 slots zero in all layers."""
        for layer in self._slots:
            for tensor in layer:
                tensor.index_fill_(0, slots, 0)

    def gather(self, layer_idx: int, block_ids: torch.Tensor, out: LayerKV | None = None) -> LayerKV:
        """Copies whole blocks, one behind the other.

        Args:
            layer_idx: The layer.
            block_ids: ``(num_blocks,)`` int64.
            out: Where to, ``(num_blocks, block_size * num_kv_heads * head_dim)`` each; None makes new tensors.

        Returns:
            ``(num_blocks * block_size, num_kv_heads, head_dim)`` keys and values.
        """
        spec = self.layers[layer_idx]
        copies = []
        for index, source in enumerate(self._slots[layer_idx]):
            blocks = source.view(self.num_blocks, -1)
            copy = torch.index_select(blocks, 0, block_ids, out=None if out is None else out[index])
            copies.append(copy.view(-1, spec.num_kv_heads, spec.head_dim))
        return LayerKV(*copies)
