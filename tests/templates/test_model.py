"""The model family that `inset new` writes, and the tutorial that fills it in."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any


def test_package_fails_where_its_author_must_act_and_passes_once_the_tutorial_is_followed(
    render: Callable[[str, str], Any], code_of: Callable[[str], Sequence[str]]
) -> None:
    package = render("model", "acme")
    package.assert_only_unwritten_parts_fail()
    materialize, encode = code_of("tutorial/first-model-family.md")
    package.fill_in("src/inset_acme/processing.py", materialize)
    package.fill_in("src/inset_acme/model.py", encode)
    package.assert_everything_passes()
