"""A second, dense home for the keys and values of decoding sequences: on a CPU, attention over views beats gathering blocks.

One row per sequence and layer, heads outermost, keys with the positions last so that scores are computed along them::

    layers[i].key    (num_rows, num_kv_heads, head_dim, capacity)
    layers[i].value  (num_rows, num_kv_heads, capacity, head_dim)
                      ^ one sequence          ^ positions 0 .. length - 1, then what an earlier sequence left

A row is filled once from its sequence's blocks, and then written with them, so that it can be given up at any time.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

import torch

from inset.worker.kv_cache import LayerKV, PagedKVCache, bytes_per_token, zeroed

__all__ = ["DecodeWorkspace"]

_FIRST_CAPACITY: Final = 1024


class DecodeWorkspace:
    """Rows for decoding sequences, bounded in bytes.

    Capacity doubles when a sequence grows out of its row, as long as the rows that then fit hold all sequences of the step; a
    sequence without a row is attended through its blocks.
    """

    def __init__(self, cache: PagedKVCache, *, max_num_rows: int, max_length: int, max_bytes: int) -> None:
        self._cache = cache
        self._max_num_rows = max_num_rows
        self._max_length = max_length
        self._max_bytes = max_bytes
        self._row_of: dict[str, int] = {}
        self._free: list[int] = []
        self._capacity = 0
        self.layers: list[LayerKV] = []
        self._allocate(min(_FIRST_CAPACITY, max_length))

    @property
    def num_rows_in_use(self) -> int:
        """Rows that belong to a sequence."""
        return len(self._row_of)

    @property
    def capacity(self) -> int:
        """Positions in one row."""
        return self._capacity

    def assign_rows(self, lengths: Mapping[str, int], block_ids: Mapping[str, Sequence[int]]) -> dict[str, int]:
        """Gives rows to the decoding sequences of one step.

        Args:
            lengths: Request id -> positions in this step, the new one included, which is not in the blocks yet.
            block_ids: Request id -> its blocks.

        Returns:
            Request id -> row; who is missing has none.
        """
        self._grow(max(lengths.values(), default=0), len(lengths))
        fresh = [i for i, length in lengths.items() if i not in self._row_of and length <= self._capacity]
        for request_id in fresh[: len(self._free)]:
            row = self._free.pop()
            self._row_of[request_id] = row
            self._fill(row, lengths[request_id] - 1, block_ids[request_id])
        return {i: self._row_of[i] for i, length in lengths.items() if i in self._row_of and length <= self._capacity}

    def write(self, layer_idx: int, rows: torch.Tensor, positions: torch.Tensor, key: torch.Tensor, value: torch.Tensor) -> None:
        """Stores one position of each of several rows: ``(num_rows, num_kv_heads, head_dim)`` keys and values."""
        layer = self.layers[layer_idx]
        layer.key[rows, :, :, positions] = key
        layer.value[rows, :, positions] = value

    def wipe(self, rows: torch.Tensor, positions: torch.Tensor) -> None:
        """Makes one position of each of several rows zero in all layers."""
        for layer in self.layers:
            layer.key[rows, :, :, positions] = 0
            layer.value[rows, :, positions] = 0

    def view(self, layer_idx: int, rows: slice, length: int) -> LayerKV:
        """Returns neighbouring rows without copying, heads of all rows one behind the other.

        Returns:
            Keys ``(num_rows * num_kv_heads, head_dim, length)`` and values ``(num_rows * num_kv_heads, length, head_dim)``.
        """
        layer = self.layers[layer_idx]
        return LayerKV(layer.key[rows].flatten(0, 1)[:, :, :length], layer.value[rows].flatten(0, 1)[:, :length])

    def release(self, request_id: str) -> None:
        """Gives up a sequence's row; idempotent."""
        row = self._row_of.pop(request_id, None)
        if row is not None:
            self._free.append(row)
            self._free.sort(reverse=True)  # the lowest row is taken first: rows in use stay neighbours

    def _grow(self, length: int, num_sequences: int) -> None:
        capacity = max(self._capacity, 1)
        while capacity < min(length, self._max_length):
            capacity *= 2
        if capacity > self._capacity > 0 and self._num_rows_at(capacity) >= num_sequences:
            self._allocate(capacity)

    def _num_rows_at(self, capacity: int) -> int:
        row_bytes = capacity * bytes_per_token(self._cache.layers, self._cache.dtype)
        return min(self._max_num_rows, self._max_bytes // row_bytes)

    def _allocate(self, capacity: int) -> None:
        num_rows = self._num_rows_at(capacity)
        self._capacity = capacity if num_rows else 0
        self._row_of.clear()
        self._free = list(reversed(range(num_rows)))
        dtype, device = self._cache.dtype, self._cache.device
        self.layers = [
            LayerKV(
                zeroed((num_rows, spec.num_kv_heads, spec.head_dim, self._capacity), dtype, device),
                zeroed((num_rows, spec.num_kv_heads, self._capacity, spec.head_dim), dtype, device),
            )
            for spec in self._cache.layers
        ]

    def _fill(self, row: int, length: int, block_ids: Sequence[int]) -> None:
        num_blocks = -(-length // self._cache.block_size)
        blocks = torch.tensor(block_ids[:num_blocks], dtype=torch.int64, device=self._cache.device)
        for layer_idx, layer in enumerate(self.layers):
            key, value = self._cache.gather(layer_idx, blocks)
            layer.key[row, :, :, :length] = key[:length].permute(1, 2, 0)
            layer.value[row, :, :length] = value[:length].transpose(0, 1)
