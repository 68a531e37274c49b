"""Masks of embeds keep their meaning in every form in which they travel."""

from __future__ import annotations

import copy
import dataclasses
import json
import pickle

import pytest
from hypothesis import given
from hypothesis import strategies as st

from inset.inputs import ItemPlan, PlaceholderRange, ProcessedPrompt, runs_from_mask

masks = st.lists(st.booleans(), min_size=1, max_size=40)


def mask_of(placeholder: PlaceholderRange) -> list[bool]:
    embeds = {position for start, stop in placeholder.runs for position in range(start, stop)}
    return [position in embeds for position in range(placeholder.length)]


@given(masks, st.integers(0, 1000))
def test_mask_comes_back_from_its_runs(mask: list[bool], offset: int) -> None:
    placeholder = PlaceholderRange(offset, len(mask), runs_from_mask(mask))
    assert mask_of(placeholder) == mask
    assert placeholder.num_embeds == sum(mask)
    assert [placeholder.num_embeds_before(position) for position in range(-1, len(mask) + 2)] == [
        sum(mask[: max(0, position)]) for position in range(-1, len(mask) + 2)
    ]
    assert (placeholder.is_embed is None) == all(mask)


@given(masks)
def test_mask_survives_pickling_copying_and_replacing(mask: list[bool]) -> None:
    runs = runs_from_mask(mask)
    placeholder = PlaceholderRange(3, len(mask), runs)
    plan = ItemPlan(num_tokens=len(mask), num_embeds=sum(mask), is_embed=runs)
    prompt = ProcessedPrompt(prompt_token_ids=[1] * (3 + len(mask)), mm_placeholders={"image": [placeholder]}, mm_plans={"image": [plan]})
    for again in (pickle.loads(pickle.dumps(prompt)), copy.deepcopy(prompt), copy.copy(prompt), dataclasses.replace(prompt)):  # noqa: S301 - ours
        assert again == prompt
        assert mask_of(again.mm_placeholders["image"][0]) == mask
        assert again.mm_plans["image"][0].is_embed == runs


@given(masks)
def test_mask_survives_json(mask: list[bool]) -> None:
    runs = runs_from_mask(mask)
    back = json.loads(json.dumps(runs))
    assert mask_of(PlaceholderRange(0, len(mask), None if back is None else tuple(map(tuple, back)))) == mask


@pytest.mark.parametrize("mask", [[False], [False] * 5])
def test_mask_without_embeds_is_not_taken_for_one_of_all(mask: list[bool]) -> None:
    placeholder = PlaceholderRange(0, len(mask), runs_from_mask(mask))
    assert (placeholder.is_embed, placeholder.num_embeds) == ((), 0)


@pytest.mark.parametrize(
    ("offset", "length", "runs"),
    [
        (-1, 4, None),
        (0, 0, None),
        (0, 4, ((0, 5),)),
        (0, 4, ((2, 2),)),
        (0, 4, ((1, 3), (2, 4))),
        (0, 4, ((2, 3), (0, 1))),
        (0, 4, ((-1, 2),)),
    ],
)
def test_ranges_that_make_no_sense_are_refused(offset: int, length: int, runs: tuple[tuple[int, int], ...] | None) -> None:
    with pytest.raises(ValueError, match="placeholder"):
        PlaceholderRange(offset, length, runs)
