from __future__ import annotations

from collections.abc import Callable

import pytest

from inset.inputs import MultiModalFeature
from inset.sched.block_hash import hash_block, hash_root

MakeItem = Callable[..., MultiModalFeature]
TOKENS = [5, 5, 5, 5]


def test_roots_separate_salts_and_prompt_embeddings() -> None:
    roots = [hash_root(*key) for key in [(None, None), ("", None), ("a", None), ("b", None), (None, b"a"), ("a", b"a")]]
    assert len(set(roots)) == len(roots)
    assert all(len(root) == 32 for root in roots)


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ((b"p", TOKENS, []), (b"q", TOKENS, [])),
        ((b"p", TOKENS, []), (b"p", [5, 5, 5, 6], [])),
        ((b"p", TOKENS, []), (b"p", TOKENS, [("A", 8)])),
        ((b"p", TOKENS, [("A", 8)]), (b"p", TOKENS, [("B", 8)])),
        ((b"p", TOKENS, [("A", 8)]), (b"p", TOKENS, [("A", 9)])),
        ((b"p", TOKENS, [("A", 6)]), (b"p", TOKENS, [("A", 7)])),
        ((b"p", TOKENS, [("A", 7)]), (b"p", TOKENS, [("A", 7), ("A", 10)])),
        ((b"p", TOKENS, [("A", 6), ("B", 9)]), (b"p", TOKENS, [("B", 6), ("A", 9)])),
    ],
    ids=["parent", "token", "item_or_none", "item", "offset_inside", "offset_before", "one_or_two", "order"],
)
def test_blocks_that_differ_in_one_thing_differ_in_name(
    one: tuple[bytes, list[int], list[tuple[str, int]]], other: tuple[bytes, list[int], list[tuple[str, int]]], make_item: MakeItem
) -> None:
    names = [hash_block(parent, tokens, 8, [make_item(n, offset, 3) for n, offset in items]) for parent, tokens, items in (one, other)]
    assert names[0] != names[1]


def test_items_that_do_not_overlap_the_block_do_not_count(make_item: MakeItem) -> None:
    around = [make_item("A", 5, 3), make_item("B", 12, 3)]
    assert hash_block(b"p", TOKENS, 8, around) == hash_block(b"p", TOKENS, 8, [])


def test_the_same_content_in_a_later_block_has_the_same_name_behind_the_same_parent(make_item: MakeItem) -> None:
    assert hash_block(b"p", TOKENS, 8, [make_item("A", 7, 3)]) == hash_block(b"p", TOKENS, 40, [make_item("A", 39, 3)])
