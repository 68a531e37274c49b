"""Puts the rows of items, and where they stand, into the inputs of a step. Pure: values in, values out."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import torch

from inset.inputs import PlaceholderRange

__all__ = ["RowSlice", "SpliceRun", "place", "splice", "window_slices"]


class RowSlice(NamedTuple):
    """Rows of one item that land on neighbouring positions.

    Attributes:
        position: First position, relative to the window.
        first_row: First row of the item.
        num_rows: How many rows and positions.
    """

    position: int
    first_row: int
    num_rows: int


class SpliceRun(NamedTuple):
    """Rows for neighbouring positions of the packed batch.

    Attributes:
        position: First position in the packed batch.
        rows: ``(num_rows, embed_size)``.
        position_ids: ``(num_axes, num_rows)`` int64 where the encoder told them, else None.
    """

    position: int
    rows: torch.Tensor
    position_ids: torch.Tensor | None = None


def window_slices(placeholder: PlaceholderRange, start: int, stop: int) -> list[RowSlice]:
    """Returns which rows of an item land where in the window of prompt positions ``start:stop``.

    Example: rows 0 and 1 of ``PlaceholderRange(5, 7, ((1, 3), (4, 6)))`` belong at 6 and 7, rows 2 and 3 at 9 and 10. The window 7:10 gets
    ``[RowSlice(0, 1, 1), RowSlice(2, 2, 1)]``.
    """
    if start >= placeholder.offset + placeholder.length:  # every step of an answer asks for the items before it
        return []
    slices: list[RowSlice] = []
    first_row = 0
    for run_start, run_stop in placeholder.runs:
        begin = max(start, placeholder.offset + run_start)
        end = min(stop, placeholder.offset + run_stop)
        if begin < end:
            slices.append(RowSlice(begin - start, first_row + begin - placeholder.offset - run_start, end - begin))
        first_row += run_stop - run_start
    return slices


def splice(inputs_embeds: torch.Tensor, runs: Sequence[SpliceRun]) -> tuple[torch.Tensor, torch.Tensor | None]:
    """Returns embeddings with the rows of items in their places.

    Args:
        inputs_embeds: ``(num_tokens, hidden_size)`` embeddings of the token ids; it is not changed.
        runs: Rows; columns behind `hidden_size` are features for later layers.

    Returns:
        ``(num_tokens, hidden_size)``, and ``(num_tokens, embed_size - hidden_size)`` zero where no item is, or None where no row is wider.
    """
    if not runs:
        return inputs_embeds, None
    num_tokens, hidden_size = inputs_embeds.shape
    extra = max(run.rows.shape[1] for run in runs) - hidden_size
    spliced = inputs_embeds.clone()
    layer_embeds = inputs_embeds.new_zeros((num_tokens, extra)) if extra > 0 else None
    for position, rows, _ in runs:
        stop = position + len(rows)
        spliced[position:stop] = rows[:, :hidden_size]
        if layer_embeds is not None and rows.shape[1] > hidden_size:
            layer_embeds[position:stop] = rows[:, hidden_size:]
    return spliced, layer_embeds


def place(position_ids: torch.Tensor, runs: Sequence[SpliceRun]) -> torch.Tensor:
    """Returns rotary positions with those that encoders told in their places.

    Args:
        position_ids: ``(num_axes, num_tokens)`` int64; it is not changed.
        runs: Rows.
    """
    told = [(run.position, run.position_ids) for run in runs if run.position_ids is not None]
    if not told:
        return position_ids
    placed = position_ids.clone()
    for position, own in told:
        placed[:, position : position + own.shape[1]] = own
    return placed
