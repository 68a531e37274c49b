"""Positions equal those of transformers' get_rope_index, for any layout of text, images and videos."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import pytest
import torch

from inset.errors import InvariantError
from inset.inputs import ItemPlan, MultiModalFeature, PlaceholderRange
from inset_qwen_vl.positions import Grid, GridRun, compute_positions, find_grid_runs

Reference = Callable[..., Any]
TOKENS_PER_SECOND = {"qwen2_vl": None, "qwen2_5_vl": 2.0, "qwen3_vl": None}
TEXT, IMAGE, VIDEO, MERGE = 20, 5, 6, 2


def feature(modality: str, offset: int, runs: tuple[tuple[int, int], ...], grid: tuple[int, int, int], seconds: float) -> MultiModalFeature:
    length = runs[-1][1] + (len(runs) > 1)
    return MultiModalFeature(
        modality=modality,
        item_index=0,
        mm_hash=bytes(32),
        placeholder=PlaceholderRange(offset, length, None if runs == ((0, length),) else runs),
        data=None,
        plan=ItemPlan(num_tokens=length, num_embeds=0, grid=grid, details={"second_per_grid_ts": seconds}),
    )


def layout(family: str, rng: random.Random) -> tuple[list[int], list[MultiModalFeature]]:
    """Random text, images and videos; neighbours are separated, because get_rope_index takes them for one item otherwise."""
    ids = [TEXT] * rng.randint(1, 9)
    features: list[MultiModalFeature] = []
    for _ in range(rng.randint(0, 5)):
        modality = rng.choice(["image", "video"])
        height, width = rng.randint(1, 9), rng.randint(1, 9)
        steps = 1 if modality == "image" else rng.randint(1, 12)
        grid = (steps, height * MERGE, width * MERGE)
        offset, token = len(ids), IMAGE if modality == "image" else VIDEO
        runs: tuple[tuple[int, int], ...] = ((0, steps * height * width),)
        if modality == "video" and family == "qwen3_vl":
            starts = [4 + step * (height * width + 5) for step in range(steps)]
            runs = tuple((start, start + height * width) for start in starts)
        ids.extend([TEXT] * (runs[-1][1] + (len(runs) > 1)))
        for start, stop in runs:
            ids[offset + start : offset + stop] = [token] * (stop - start)
        features.append(feature(modality, offset, runs, grid, rng.choice([0.08, 1 / 3, 0.5, 1.0, 2.0, 7.3])))
        ids.extend([TEXT] * rng.randint(1, 7))
    return ids, features


@pytest.mark.parametrize("family", TOKENS_PER_SECOND)
def test_positions_equal_get_rope_index_for_random_layouts(reference: Reference, family: str) -> None:
    model = reference(family).model.model
    rng = random.Random(7)
    for _ in range(500):
        ids, features = layout(family, rng)
        given: dict[str, Any] = {}
        for modality in ("image", "video"):
            grids = [f.plan.grid for f in features if f.modality == modality]
            given[f"{modality}_grid_thw"] = torch.tensor(grids) if grids else None
        if family == "qwen2_5_vl":
            given["second_per_grid_ts"] = torch.tensor([f.plan.details["second_per_grid_ts"] for f in features if f.modality == "video"])
        input_ids = torch.tensor([[*ids, *[TEXT] * 3]])
        kinds = (input_ids == IMAGE).int() + 2 * (input_ids == VIDEO).int()
        expected, _ = model.get_rope_index(input_ids, mm_token_type_ids=kinds, **given)
        runs = find_grid_runs(features[::-1], merge_size=MERGE, tokens_per_second=TOKENS_PER_SECOND[family])
        positions, next_position = compute_positions(len(ids), runs)
        answer = torch.arange(next_position, next_position + 3).expand(3, 3)
        torch.testing.assert_close(torch.cat([positions, answer], dim=1), expected[:, 0], rtol=0, atol=0)


def test_text_alone_counts_up_on_all_axes() -> None:
    positions, next_position = compute_positions(4, [])
    assert positions.tolist() == [[0, 1, 2, 3]] * 3
    assert next_position == 4


def test_a_grid_spans_its_axes_and_text_goes_on_behind_its_longer_side() -> None:
    positions, next_position = compute_positions(9, [GridRun(1, Grid((1, 2, 3)))])
    assert positions.tolist() == [[0, 1, 1, 1, 1, 1, 1, 4, 5], [0, 1, 1, 1, 2, 2, 2, 4, 5], [0, 1, 2, 3, 1, 2, 3, 4, 5]]
    assert next_position == 6


def test_the_answer_goes_on_behind_the_text_also_where_a_video_reaches_further() -> None:
    positions, next_position = compute_positions(6, [GridRun(0, Grid((5, 1, 1), 3.0))])
    assert positions[0].tolist() == [0, 3, 6, 9, 12, 1]
    assert next_position == 2


def test_a_placeholder_that_does_not_fit_its_grid_is_an_error_of_ours() -> None:
    with pytest.raises(InvariantError, match="does not fit its grid"):
        find_grid_runs([feature("image", 0, ((0, 5),), (1, 4, 4), 1.0)], merge_size=2, tokens_per_second=None)


def test_text_behind_a_pruned_video_stands_where_it_would_behind_the_whole_one() -> None:
    whole, following = compute_positions(14, [GridRun(1, Grid((3, 2, 2), 2.0))])
    pruned, next_position = compute_positions(8, [GridRun(1, Grid((3, 2, 2), 2.0), num_kept=6)])
    assert pruned[:, 1].tolist() == whole[:, 1].tolist()
    assert pruned[:, 7].tolist() == whole[:, 13].tolist()
    assert next_position == following
