from __future__ import annotations

from itertools import pairwise

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from inset.inputs import PlaceholderRange, runs_from_mask
from inset.worker.splice import RowSlice, SpliceRun, place, splice, window_slices

EXAMPLE = PlaceholderRange(5, 7, ((1, 3), (4, 6)))


@pytest.mark.parametrize(
    ("start", "stop", "expected"),
    [
        (0, 100, [RowSlice(6, 0, 2), RowSlice(9, 2, 2)]),
        (7, 10, [RowSlice(0, 1, 1), RowSlice(2, 2, 1)]),
        (5, 6, []),
        (8, 9, []),
        (0, 5, []),
        (12, 20, []),
        (6, 7, [RowSlice(0, 0, 1)]),
        (10, 11, [RowSlice(0, 3, 1)]),
    ],
)
def test_rows_land_at_their_positions_in_any_window(start: int, stop: int, expected: list[RowSlice]) -> None:
    assert window_slices(EXAMPLE, start, stop) == expected


@given(
    mask=st.lists(st.booleans(), min_size=1, max_size=30).filter(any),
    offset=st.integers(0, 20),
    cuts=st.lists(st.integers(0, 60), max_size=6),
)
def test_windows_together_place_every_row_once(mask: list[bool], offset: int, cuts: list[int]) -> None:
    placeholder = PlaceholderRange(offset, len(mask), runs_from_mask(mask))
    edges = sorted({0, *cuts, 60})
    placed = [
        (start + found.position + i, found.first_row + i)
        for start, stop in pairwise(edges)
        for found in window_slices(placeholder, start, stop)
        for i in range(found.num_rows)
    ]
    positions = [offset + position for position, is_embed in enumerate(mask) if is_embed]
    assert placed == [(position, row) for row, position in enumerate(positions)]


def test_rows_replace_embeddings_and_nothing_else_changes() -> None:
    embeds = torch.zeros(6, 2)
    rows = torch.ones(2, 2)
    spliced, layer_embeds = splice(embeds, [SpliceRun(1, rows), SpliceRun(5, rows[:1] * 3)])
    assert spliced[:, 0].tolist() == [0, 1, 1, 0, 0, 3]
    assert layer_embeds is None
    assert not embeds.any()


def test_columns_behind_the_hidden_size_go_to_later_layers() -> None:
    rows = torch.arange(10.0).view(2, 5)
    spliced, layer_embeds = splice(torch.zeros(4, 2), [SpliceRun(1, rows), SpliceRun(3, torch.full((1, 2), 9.0))])
    assert spliced.tolist() == [[0, 0], [0, 1], [5, 6], [9, 9]]
    assert layer_embeds is not None
    assert layer_embeds.tolist() == [[0, 0, 0], [2, 3, 4], [7, 8, 9], [0, 0, 0]]


def test_without_rows_the_embeddings_pass_through() -> None:
    embeds = torch.zeros(3, 2)
    assert splice(embeds, []) == (embeds, None)


def test_positions_that_an_encoder_told_replace_the_earlier_ones_and_nothing_else_changes() -> None:
    position_ids = torch.arange(5).expand(2, 5)
    rows = torch.zeros(2, 1)
    placed = place(position_ids, [SpliceRun(0, rows[:1]), SpliceRun(1, rows, torch.tensor([[7, 8], [9, 9]]))])
    assert placed.tolist() == [[0, 7, 8, 3, 4], [0, 9, 9, 3, 4]]
    assert position_ids.tolist() == [[0, 1, 2, 3, 4]] * 2
    assert place(position_ids, [SpliceRun(0, rows)]) is position_ids
