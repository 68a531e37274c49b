"""The cache type that `inset new` writes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

PACKING = '''
def pack(self, tensors: ItemTensors) -> Packed:
    """Keeps the arrays themselves."""
    return read_only(tensors)

def unpack(self, packed: Packed) -> ItemTensors:
    """Returns them."""
    assert not isinstance(packed, bytes)
    return packed
'''


def test_package_fails_where_its_author_must_act_and_passes_once_that_is_written(render: Callable[[str, str], Any]) -> None:
    package = render("cache", "two-words")
    package.assert_only_unwritten_parts_fail()
    package.fill_in("src/inset_two_words/cache.py", PACKING)
    package.assert_everything_passes()
