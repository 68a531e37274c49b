"""The attention of one step: which positions of the packed batch belong to which sequence, and how each group of them is attended.

The packed batch holds the decoding sequences first, one position each, in the order of their rows in the decode workspace and then those
without a row, and behind them the sequences that compute several positions::

    | row 0 | row 1 | row 3 | no row | no row | chunk of a prompt ... | chunk of another prompt ... |
    '--- dense groups -----' '--- gathered --' '--- one call each --------------------------------'
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple

import torch
from torch.nn.functional import scaled_dot_product_attention

from inset.modeling.forward_context import PackedAttention
from inset.worker.decode_workspace import DecodeWorkspace
from inset.worker.kv_cache import LayerKV, PagedKVCache

__all__ = ["SequenceSlice", "StepAttention"]

# Sequences share a call while the longest is not much longer than the shortest: padding costs time, calls too.
_GROUP_RATIO: Final = 1.25
_GROUP_SLACK: Final = 64


@dataclass(frozen=True, slots=True)
class SequenceSlice:
    """One sequence in a step.

    Attributes:
        num_computed_tokens: Positions whose keys and values are stored already.
        num_new_tokens: Positions of this step.
        block_ids: Its blocks, for the new positions too.
        row: Its row in the decode workspace, or None.
    """

    num_computed_tokens: int
    num_new_tokens: int
    block_ids: Sequence[int]
    row: int | None = None

    @property
    def length(self) -> int:
        """Positions stored when the step is done."""
        return self.num_computed_tokens + self.num_new_tokens


class _Group(NamedTuple):
    """Neighbouring decoding sequences that one call attends: positions ``start:stop`` of the batch."""

    start: int
    stop: int
    lengths: tuple[int, ...]
    first_row: int | None  # None: gathered through `blocks`
    blocks: torch.Tensor | None  # (num_sequences * blocks of the longest,)


class _Score(NamedTuple):
    """How a layer scores keys; see `PackedAttention.attend`."""

    scaling: float
    sliding_window: int | None
    softcap: float | None


class StepAttention(PackedAttention):
    """Attention over one packed batch; made anew for each step and used by one thread."""

    def __init__(self, sequences: Sequence[SequenceSlice], cache: PagedKVCache, workspace: DecodeWorkspace | None) -> None:
        self._sequences = sequences
        self._cache = cache
        self._workspace = workspace
        self._num_decodes = sum(1 for s in sequences if s.num_new_tokens == 1 and s.num_computed_tokens > 0)
        assert all(s.num_new_tokens == 1 for s in sequences[: self._num_decodes]), "decoding sequences come first"
        rows = [s.row for s in sequences[: self._num_decodes] if s.row is not None]
        assert rows == sorted(rows), "sequences with rows come in the order of their rows"
        device = cache.device
        self._slots = torch.tensor(self._slot_list(), dtype=torch.int64, device=device)
        self._rows = torch.tensor(rows, dtype=torch.int64, device=device)
        self._row_positions = torch.tensor([s.num_computed_tokens for s in sequences[: len(rows)]], dtype=torch.int64, device=device)
        self._groups = [
            *_split(sequences[: len(rows)], 0, None),
            *_split(sequences[len(rows) : self._num_decodes], len(rows), cache),
        ]
        self._prompt_blocks = {
            index: torch.tensor(s.block_ids[: -(-s.length // cache.block_size)], dtype=torch.int64, device=device)
            for index, s in enumerate(sequences)
            if index >= self._num_decodes and s.num_computed_tokens > 0
        }
        self._masks: dict[tuple[int, int | None, int], torch.Tensor] = {}
        self._gathered: dict[tuple[int, int, int], LayerKV] = {}

    def attend(
        self,
        layer_idx: int,
        query: torch.Tensor,
        key: torch.Tensor,
        value: torch.Tensor,
        *,
        scaling: float,
        sliding_window: int | None = None,
        softcap: float | None = None,
    ) -> torch.Tensor:
        """Stores the new keys and values, and attends group by group; see `PackedAttention.attend`."""
        key, value = key.transpose(0, 1), value.transpose(0, 1)
        self._cache.write(layer_idx, self._slots, key, value)
        num_rows = len(self._rows)
        if num_rows and self._workspace is not None:
            self._workspace.write(layer_idx, self._rows, self._row_positions, key[:num_rows], value[:num_rows])
        score = _Score(scaling, sliding_window, softcap)
        outputs = [self._attend_group(layer_idx, group, query[:, group.start : group.stop], score) for group in self._groups]
        start = self._num_decodes
        for index in range(start, len(self._sequences)):
            stop = start + self._sequences[index].num_new_tokens
            fresh = LayerKV(key[start:stop], value[start:stop])
            outputs.append(self._attend_chunk(layer_idx, index, query[:, start:stop], fresh, score))
            start = stop
        return outputs[0] if len(outputs) == 1 else torch.cat(outputs)

    def wipe(self, start: int, stop: int) -> None:
        """Makes everything zero that positions ``start:stop`` of the batch stored in this step."""
        self._cache.wipe(self._slots[start:stop])
        in_rows = slice(start, min(stop, len(self._rows)))
        if self._workspace is not None and start < len(self._rows):
            self._workspace.wipe(self._rows[in_rows], self._row_positions[in_rows])

    def _attend_group(self, layer_idx: int, group: _Group, query: torch.Tensor, score: _Score) -> torch.Tensor:
        num_heads, count, head_dim = query.shape
        num_kv_heads = self._cache.layers[layer_idx].num_kv_heads
        mask = self._decode_mask(group, score.sliding_window, 1 if group.blocks is not None else num_kv_heads)
        # Heads that share keys stand on the query axis: one product for all of them.
        shared = query.transpose(0, 1).reshape(count, num_kv_heads, -1, head_dim)
        if group.blocks is None:
            assert group.first_row is not None
            assert self._workspace is not None
            kv = self._workspace.view(layer_idx, slice(group.first_row, group.first_row + count), max(group.lengths))
            attended = _attend_dense(shared.flatten(0, 1), kv, None if mask is None else mask.flatten(0, 1), score)
        else:
            attended = _attend(shared, self._gather(layer_idx, group), mask, score)
        return attended.reshape(count, num_heads, head_dim)

    def _attend_chunk(self, layer_idx: int, index: int, query: torch.Tensor, fresh: LayerKV, score: _Score) -> torch.Tensor:
        sequence = self._sequences[index]
        kv = fresh
        if sequence.num_computed_tokens > 0:
            kv = self._cache.gather(layer_idx, self._prompt_blocks[index])
        num_heads, num_new, head_dim = query.shape
        num_kv_heads = kv.key.shape[1]
        group_size = num_heads // num_kv_heads
        # Heads that share keys become a batch of their own over expanded views: nothing is copied.
        shared = LayerKV(*(t[: sequence.length].transpose(0, 1)[:, None].expand(-1, group_size, -1, -1) for t in kv))
        grouped = query.reshape(num_kv_heads, group_size, num_new, head_dim)
        attended = _attend(grouped, shared, self._chunk_mask(index, score.sliding_window), score, is_causal=True)
        return attended.reshape(num_heads, num_new, head_dim).transpose(0, 1)

    def _gather(self, layer_idx: int, group: _Group) -> LayerKV:
        assert group.blocks is not None
        spec = self._cache.layers[layer_idx]
        name = (group.start, spec.num_kv_heads, spec.head_dim)
        gathered = self._cache.gather(layer_idx, group.blocks, self._gathered.get(name))
        self._gathered[name] = LayerKV(*(t.view(len(group.blocks), -1) for t in gathered))  # memory that the next layer takes over
        shape = (len(group.lengths), -1, spec.num_kv_heads, spec.head_dim)
        return LayerKV(*(t.view(shape)[:, : max(group.lengths)].transpose(1, 2) for t in gathered))

    def _decode_mask(self, group: _Group, sliding_window: int | None, num_heads: int) -> torch.Tensor | None:
        """Returns ``(num_sequences, num_heads, 1, longest)`` of 0 and -inf, made once per step; None where nothing is masked."""
        shortest, longest = min(group.lengths), max(group.lengths)
        if sliding_window is not None and sliding_window >= longest:
            sliding_window = None
        if shortest == longest and sliding_window is None:
            return None
        name = (group.start, sliding_window, num_heads)
        if name not in self._masks:
            device = self._cache.device
            lengths = torch.tensor(group.lengths, dtype=torch.int64, device=device)[:, None]
            positions = torch.arange(longest, device=device)[None]
            visible = positions < lengths
            if sliding_window is not None:
                visible &= positions >= lengths - sliding_window
            self._masks[name] = _additive(visible[:, None, None].expand(-1, num_heads, -1, -1), self._cache.dtype)
        return self._masks[name]

    def _chunk_mask(self, index: int, sliding_window: int | None) -> torch.Tensor | None:
        sequence = self._sequences[index]
        if sliding_window is not None and sliding_window >= sequence.length:
            sliding_window = None
        if sequence.num_computed_tokens == 0 and sliding_window is None:
            return None
        name = (index, sliding_window, 1)  # never a group's: their starts lie below the number of decoding sequences
        if name not in self._masks:
            positions = torch.arange(sequence.length, device=self._cache.device)
            queries = positions[sequence.num_computed_tokens :, None]
            visible = positions <= queries
            if sliding_window is not None:
                visible &= positions > queries - sliding_window
            self._masks[name] = _additive(visible, self._cache.dtype)
        return self._masks[name]

    def _slot_list(self) -> list[int]:
        size = self._cache.block_size
        return [
            s.block_ids[position // size] * size + position % size
            for s in self._sequences
            for position in range(s.num_computed_tokens, s.length)
        ]


def _split(sequences: Sequence[SequenceSlice], offset: int, cache: PagedKVCache | None) -> list[_Group]:
    """Splits decoding sequences that follow one another into groups of similar length; with a cache they are gathered from it."""
    groups: list[_Group] = []
    start = shortest = longest = 0
    for stop in range(1, len(sequences) + 1):
        last = sequences[stop - 1]
        shortest, longest = (min(shortest, last.length), max(longest, last.length)) if stop - start > 1 else (last.length, last.length)
        if stop < len(sequences) and _belongs(last, sequences[stop], shortest, longest):
            continue
        members = sequences[start:stop]
        blocks = None if cache is None else _pad_blocks(members, cache)
        groups.append(_Group(offset + start, offset + stop, tuple(s.length for s in members), members[0].row, blocks))
        start = stop
    return groups


def _belongs(last: SequenceSlice, candidate: SequenceSlice, shortest: int, longest: int) -> bool:
    if last.row is not None and candidate.row != last.row + 1:
        return False
    return max(longest, candidate.length) <= min(shortest, candidate.length) * _GROUP_RATIO + _GROUP_SLACK


def _pad_blocks(members: Sequence[SequenceSlice], cache: PagedKVCache) -> torch.Tensor:
    size = cache.block_size
    width = -(-max(s.length for s in members) // size)
    # What pads a sequence is a block of its own: nobody reads what another one holds.
    table = [[*s.block_ids[:width], *[s.block_ids[0]] * (width - len(s.block_ids))] for s in members]
    return torch.tensor(table, dtype=torch.int64, device=cache.device).view(-1)


def _additive(visible: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
    return torch.zeros(visible.shape, dtype=dtype, device=visible.device).masked_fill_(~visible, float("-inf"))


def _attend(query: torch.Tensor, kv: LayerKV, mask: torch.Tensor | None, score: _Score, *, is_causal: bool = False) -> torch.Tensor:
    """Attends ``(batch, heads, num_queries, head_dim)`` queries; causal only where there is no mask, which says it better."""
    is_causal = is_causal and mask is None
    if score.softcap is None:
        return scaled_dot_product_attention(query, kv.key, kv.value, attn_mask=mask, is_causal=is_causal, scale=score.scaling)
    scores = torch.matmul(query, kv.key.transpose(-1, -2)).float() * score.scaling
    scores = torch.tanh(scores / score.softcap) * score.softcap
    if is_causal:
        count = query.shape[-2]
        mask = _additive(torch.ones(count, count, dtype=torch.bool, device=query.device).tril(), torch.float32)
    if mask is not None:
        scores = scores + mask
    return torch.matmul(scores.softmax(-1).to(query.dtype), kv.value)


def _attend_dense(query: torch.Tensor, kv: LayerKV, mask: torch.Tensor | None, score: _Score) -> torch.Tensor:
    """Attends ``(batch, num_queries, head_dim)`` queries over views of the workspace; for few queries this beats the fused kernel."""
    if mask is None or score.softcap is not None:
        scores = torch.baddbmm(query.new_empty(1), query, kv.key, beta=0, alpha=score.scaling)
    else:
        scores = torch.baddbmm(mask, query, kv.key, alpha=score.scaling)
    if score.softcap is not None:
        scores = torch.tanh(scores / score.softcap) * score.softcap
        scores = scores if mask is None else scores + mask
    return torch.bmm(scores.softmax(-1, dtype=torch.float32).to(query.dtype), kv.value)
