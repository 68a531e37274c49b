"""Puts the items' tokens into a prompt. Pure: token ids and updates in, new token ids and placeholder ranges out."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

from inset.errors import InvalidRequestError, InvariantError, PlaceholderError
from inset.inputs import ItemPlan, PlaceholderRange
from inset.processing.prompt_updates import PlaceholderContent, PromptInsertion, PromptReplacement, PromptUpdate

__all__ = ["ExpandedPrompt", "apply_prompt_updates", "check_token_ids"]


class ExpandedPrompt(NamedTuple):
    """A prompt in which every item has its place.

    Attributes:
        token_ids: Token ids with the placeholders expanded.
        placeholders: Modality -> positions per item, in request order.
    """

    token_ids: list[int]
    placeholders: dict[str, list[PlaceholderRange]]


class _Edit(NamedTuple):
    """Contents that take the place of prompt positions [start, stop)."""

    start: int
    stop: int
    update: PromptUpdate
    contents: Sequence[PlaceholderContent]


def apply_prompt_updates(
    token_ids: Sequence[int],
    updates: Sequence[PromptUpdate],
    *,
    plans: Mapping[str, Sequence[ItemPlan]],
) -> ExpandedPrompt:
    """Returns the prompt with all updates made.

    Where targets overlap, the leftmost one counts, and the longest one of those that start at the same token.

    Example: in ``[1, 5, 2, 5]`` with the target ``[5]`` and the contents ``[7, 7]`` and ``[7]`` the result is ``[1, 7, 7, 2, 7]`` with
    the ranges ``(1, 2)`` and ``(4, 1)``.

    Args:
        token_ids: The prompt with unexpanded placeholders.
        updates: At most one per modality.
        plans: Modality -> plan per item; contents are held against them.

    Raises:
        PlaceholderError: The prompt has another number of placeholders than there are items.
        InvariantError: A family's contents differ from its own plans, a modality has items and no update, or items would be inserted
            inside a placeholder.
    """
    _check_contents(updates, plans)
    replacements = [update for update in updates if isinstance(update, PromptReplacement)]
    edits = list(_find_replacements(token_ids, replacements))
    edits += [_find_insertion(token_ids, update) for update in updates if isinstance(update, PromptInsertion) and update.contents]
    edits.sort(key=lambda edit: (edit.start, edit.stop))
    expanded: list[int] = []
    placeholders: dict[str, list[PlaceholderRange]] = {update.modality: [] for update in updates}
    position = 0
    for edit in edits:
        if edit.start < position:
            raise InvariantError(f"The {edit.update.modality} tokens would go inside a placeholder, which is replaced.", stage="plan")
        expanded += token_ids[position : edit.start]
        position = edit.stop
        for content in edit.contents:
            placeholders[edit.update.modality].append(PlaceholderRange(len(expanded), len(content.token_ids), content.is_embed))
            expanded += content.token_ids
    expanded += token_ids[position:]
    return ExpandedPrompt(expanded, placeholders)


def check_token_ids(prompt: ExpandedPrompt, *, vocab_size: int, least: int = 0) -> None:
    """Refuses token ids that the model has no embedding for; those that an item's embedding replaces may be any.

    Args:
        prompt: What is looked through.
        vocab_size: The model knows the ids below.
        least: The smallest id; below 0 where negative ones stand for embeddings that come with the prompt.

    Raises:
        InvalidRequestError: A token id is below `least`, or not below `vocab_size`.
    """
    wrong = {index for index, token_id in enumerate(prompt.token_ids) if not least <= token_id < vocab_size}
    for place in (place for places in prompt.placeholders.values() for place in places) if wrong else ():
        wrong.difference_update(index for start, stop in place.runs for index in range(place.offset + start, place.offset + stop))
    if wrong:
        index = min(wrong)
        raise InvalidRequestError(
            f"The prompt holds the token id {prompt.token_ids[index]} at position {index}, and the model knows 0 to {vocab_size - 1}.",
            stage="plan",
        )


def _find_replacements(token_ids: Sequence[int], updates: Sequence[PromptReplacement]) -> Iterator[_Edit]:
    """Yields one edit per occurrence of a target, left to right, once their numbers are known to be right."""
    by_first: dict[int, list[PromptReplacement]] = {}
    for update in sorted(updates, key=lambda update: len(update.target), reverse=True):
        by_first.setdefault(update.target[0], []).append(update)
    found: dict[str, list[int]] = {update.modality: [] for update in updates}
    end = 0
    for start, token_id in enumerate(token_ids):
        if token_id not in by_first or start < end:
            continue
        for update in by_first[token_id]:
            stop = start + len(update.target)
            if list(token_ids[start:stop]) == list(update.target):
                found[update.modality].append(start)
                end = stop
                break
    for update in updates:
        starts = found[update.modality]
        _check_count(update, len(starts))
        for start, content in zip(starts, update.contents, strict=True):
            yield _Edit(start, start + len(update.target), update, (content,))


def _find_insertion(token_ids: Sequence[int], update: PromptInsertion) -> _Edit:
    target = list(update.target)
    for stop in range(len(target), len(token_ids) + 1):
        if list(token_ids[stop - len(target) : stop]) == target:
            return _Edit(stop, stop, update, update.contents)
    raise PlaceholderError(
        f"The prompt lacks the text behind which its {len(update.contents)} {update.modality}(s) go.",
        stage="plan",
        modality=update.modality,
    )


def _check_count(update: PromptReplacement, num_found: int) -> None:
    if num_found != len(update.contents):
        raise PlaceholderError(
            f"The prompt has {num_found} {update.modality} placeholder(s), and {len(update.contents)} {update.modality}(s) were given.",
            stage="plan",
            modality=update.modality,
        )


def _check_contents(updates: Sequence[PromptUpdate], plans: Mapping[str, Sequence[ItemPlan]]) -> None:
    contents = {update.modality: update.contents for update in updates}
    for modality, modality_plans in plans.items():
        given = [(len(content.token_ids), content.num_embeds) for content in contents.get(modality, ())]
        planned = [(plan.num_tokens, plan.num_embeds) for plan in modality_plans]
        if given != planned:
            raise InvariantError(f"Prompt updates for {modality} make (tokens, embeds) {given}, and the plans say {planned}.", stage="plan")
