"""Tests of putting items' tokens into a prompt."""

from __future__ import annotations

import random

import pytest

from inset.errors import InvalidRequestError, InvariantError, PlaceholderError
from inset.inputs import ItemPlan, PlaceholderRange
from inset.processing.matching import ExpandedPrompt, apply_prompt_updates, check_token_ids
from inset.processing.prompt_updates import PlaceholderContent, PromptInsertion, PromptReplacement, PromptUpdate

IMAGE, VIDEO, FILL = 100, 101, 7


def content(num_tokens: int, token_id: int = FILL) -> PlaceholderContent:
    return PlaceholderContent([token_id] * num_tokens)


def plans_of(updates: list[PromptUpdate]) -> dict[str, list[ItemPlan]]:
    return {
        update.modality: [
            ItemPlan(num_tokens=len(entry.token_ids), num_embeds=entry.num_embeds, is_embed=entry.is_embed) for entry in update.contents
        ]
        for update in updates
    }


@pytest.mark.parametrize(
    ("prompt", "lengths", "expected", "ranges"),
    [
        ([1, IMAGE, 2], [3], [1, 7, 7, 7, 2], [(1, 3)]),
        ([IMAGE], [1], [7], [(0, 1)]),
        ([IMAGE, IMAGE], [2, 1], [7, 7, 7], [(0, 2), (2, 1)]),
        ([1, 2], [], [1, 2], []),
        ([1, IMAGE, 2, 3, IMAGE], [1, 2], [1, 7, 2, 3, 7, 7], [(1, 1), (4, 2)]),
    ],
)
def test_each_placeholder_is_replaced_by_its_item(
    prompt: list[int], lengths: list[int], expected: list[int], ranges: list[tuple[int, int]]
) -> None:
    updates: list[PromptUpdate] = [PromptReplacement(modality="image", target=[IMAGE], contents=[content(n) for n in lengths])]
    result = apply_prompt_updates(prompt, updates, plans=plans_of(updates))
    assert result.token_ids == expected
    assert result.placeholders == {"image": [PlaceholderRange(*item) for item in ranges]}


def test_images_and_videos_in_mixed_order_keep_their_own_order() -> None:
    updates: list[PromptUpdate] = [
        PromptReplacement(modality="image", target=[IMAGE], contents=[content(1, 8), content(2, 8)]),
        PromptReplacement(modality="video", target=[VIDEO], contents=[content(3, 9)]),
    ]
    result = apply_prompt_updates([IMAGE, VIDEO, 1, IMAGE], updates, plans=plans_of(updates))
    assert result.token_ids == [8, 9, 9, 9, 1, 8, 8]
    assert result.placeholders == {"image": [PlaceholderRange(0, 1), PlaceholderRange(5, 2)], "video": [PlaceholderRange(1, 3)]}


def test_the_longest_of_overlapping_targets_counts() -> None:
    updates: list[PromptUpdate] = [
        PromptReplacement(modality="image", target=[IMAGE], contents=[content(1, 8)]),
        PromptReplacement(modality="video", target=[IMAGE, 3], contents=[content(1, 9)]),
    ]
    result = apply_prompt_updates([IMAGE, 3, IMAGE, 4], updates, plans=plans_of(updates))
    assert result.token_ids == [9, 8, 4]


def test_a_target_of_several_tokens_never_overlaps_itself() -> None:
    updates: list[PromptUpdate] = [PromptReplacement(modality="image", target=[5, 5], contents=[content(1), content(1)])]
    assert apply_prompt_updates([5, 5, 5, 5], updates, plans=plans_of(updates)).token_ids == [7, 7]


def test_the_embed_mask_travels_into_the_range() -> None:
    entry = PlaceholderContent([7, 9, 7], is_embed=((0, 1), (2, 3)))
    updates: list[PromptUpdate] = [PromptReplacement(modality="image", target=[IMAGE], contents=[entry])]
    result = apply_prompt_updates([1, IMAGE], updates, plans=plans_of(updates))
    assert result.placeholders["image"] == [PlaceholderRange(1, 3, ((0, 1), (2, 3)))]


@pytest.mark.parametrize(("prompt", "num_items", "num_found"), [([1, 2], 1, 0), ([IMAGE, IMAGE], 1, 2), ([IMAGE], 3, 1), ([IMAGE], 0, 1)])
def test_another_number_of_placeholders_is_refused_with_both_numbers(prompt: list[int], num_items: int, num_found: int) -> None:
    updates: list[PromptUpdate] = [PromptReplacement(modality="image", target=[IMAGE], contents=[content(2)] * num_items)]
    with pytest.raises(PlaceholderError, match=rf"has {num_found} image placeholder\(s\), and {num_items} image\(s\)") as caught:
        apply_prompt_updates(prompt, updates, plans=plans_of(updates))
    assert (caught.value.status, caught.value.modality) == (400, "image")


@pytest.mark.parametrize(("target", "expected"), [([], [7, 7, 8, 1, 2, 1]), ([1], [1, 7, 7, 8, 2, 1]), ([2, 1], [1, 2, 1, 7, 7, 8])])
def test_insertion_puts_all_items_behind_the_first_occurrence(target: list[int], expected: list[int]) -> None:
    updates: list[PromptUpdate] = [PromptInsertion(modality="image", target=target, contents=[content(2), content(1, 8)])]
    result = apply_prompt_updates([1, 2, 1], updates, plans=plans_of(updates))
    assert result.token_ids == expected
    start = expected.index(7)
    assert result.placeholders == {"image": [PlaceholderRange(start, 2), PlaceholderRange(start + 2, 1)]}


def test_insertion_behind_missing_text_is_refused() -> None:
    updates: list[PromptUpdate] = [PromptInsertion(modality="image", target=[3], contents=[content(1)])]
    with pytest.raises(PlaceholderError, match="lacks the text"):
        apply_prompt_updates([1, 2], updates, plans=plans_of(updates))


def test_contents_that_differ_from_the_plan_are_the_familys_mistake() -> None:
    updates: list[PromptUpdate] = [PromptReplacement(modality="image", target=[IMAGE], contents=[content(2)])]
    with pytest.raises(InvariantError, match="the plans say"):
        apply_prompt_updates([IMAGE], updates, plans={"image": [ItemPlan(num_tokens=3, num_embeds=3)]})
    with pytest.raises(InvariantError, match="the plans say"):
        apply_prompt_updates([IMAGE], [], plans={"image": [ItemPlan(num_tokens=3, num_embeds=3)]})


def test_items_inserted_inside_a_placeholder_of_others_are_the_familys_mistake() -> None:
    images = PromptReplacement(modality="image", target=[5, 6], contents=[content(2)])
    for target, expected in (([1], [1, 9, 7, 7, 2]), ([5, 6], [1, 7, 7, 9, 2]), ([6, 2], [1, 7, 7, 2, 9])):
        updates: list[PromptUpdate] = [images, PromptInsertion(modality="audio", target=target, contents=[content(1, 9)])]
        assert apply_prompt_updates([1, 5, 6, 2], updates, plans=plans_of(updates)).token_ids == expected
    updates = [images, PromptInsertion(modality="audio", target=[1, 5], contents=[content(1, 9)])]
    with pytest.raises(InvariantError, match="inside a placeholder"):
        apply_prompt_updates([1, 5, 6, 2], updates, plans=plans_of(updates))


def test_removing_the_ranges_from_a_random_result_leaves_the_prompt() -> None:
    random_ = random.Random(7)
    for _ in range(500):
        prompt = random_.choices([1, 2, 3, IMAGE, VIDEO], k=random_.randint(0, 30))
        updates: list[PromptUpdate] = [
            PromptReplacement(
                modality=modality, target=[token], contents=[content(random_.randint(1, 9), token) for _ in range(prompt.count(token))]
            )
            for modality, token in (("image", IMAGE), ("video", VIDEO))
        ]
        result = apply_prompt_updates(prompt, updates, plans=plans_of(updates))
        ranges = sorted((r.offset, r.end, m) for m, found in result.placeholders.items() for r in found)
        rebuilt, position = [], 0
        for start, end, modality in ranges:
            token = IMAGE if modality == "image" else VIDEO
            assert result.token_ids[start:end] == [token] * (end - start)
            rebuilt += [*result.token_ids[position:start], token]
            position = end
        assert rebuilt + result.token_ids[position:] == prompt


@pytest.mark.parametrize(
    ("token_ids", "is_known"), [([0, 9], True), ([0, 10], False), ([-1], False), ([3, 99, 99, 4], True), ([99, 99, 99], False)]
)
def test_ids_that_the_model_does_not_know_stand_only_where_embeddings_take_their_place(token_ids: list[int], is_known: bool) -> None:
    prompt = ExpandedPrompt(token_ids, {"image": [PlaceholderRange(1, 2)] if 99 in token_ids else []})
    if is_known:
        check_token_ids(prompt, vocab_size=10)
    else:
        with pytest.raises(InvalidRequestError, match="0 to 9"):
            check_token_ids(prompt, vocab_size=10)
