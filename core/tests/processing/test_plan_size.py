"""Items that cannot fit are refused by their plans alone."""

from __future__ import annotations

import pytest

from inset.errors import ItemTooLargeError, PromptTooLongError
from inset.inputs import ItemPlan
from inset.processing.plan_size import check_plan_size


def plan(num_tokens: int) -> ItemPlan:
    return ItemPlan(num_tokens=num_tokens, num_embeds=num_tokens)


def test_items_that_fill_the_context_exactly_pass() -> None:
    check_plan_size({"image": [plan(60), plan(30)], "video": [plan(10)]}, 100)
    check_plan_size({"image": [plan(10**12)]}, None)
    check_plan_size({}, 100)


def test_one_item_that_is_too_large_is_named() -> None:
    with pytest.raises(ItemTooLargeError, match=r"video 1: It takes 101 tokens .* holds 100") as caught:
        check_plan_size({"image": [plan(60)], "video": [plan(3), plan(101)]}, 100)
    assert (caught.value.modality, caught.value.item_index) == ("video", 1)


def test_items_that_are_too_many_together_are_refused_with_their_sum() -> None:
    with pytest.raises(PromptTooLongError, match="take 101 tokens, and the context holds 100"):
        check_plan_size({"image": [plan(60), plan(41)]}, 100)
