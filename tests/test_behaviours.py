"""Each behaviour that is promised names tests that exist."""

from __future__ import annotations

import ast
import tomllib
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
BEHAVIOURS = tomllib.loads((ROOT / "tests/behaviours.toml").read_text("utf-8"))
PATHS: dict[str, str] = BEHAVIOURS.pop("paths")


@cache
def names_in(path: str) -> frozenset[str]:
    """Names of a file's tests; those of a class also without it, because a name says enough where it is unique."""
    return frozenset(_tests(ast.parse((ROOT / path).read_text("utf-8")).body))


def _tests(body: list[ast.stmt], owner: str = "") -> Iterator[str]:
    for node in body:
        if isinstance(node, ast.ClassDef):
            yield from _tests(node.body, f"{node.name}::")
        elif isinstance(node, ast.FunctionDef) and node.name.startswith("test_"):
            yield from {node.name, owner + node.name}


@pytest.mark.parametrize("subject", BEHAVIOURS)
def test_behaviours_of_a_subject_have_tests_that_exist(subject: str) -> None:
    gone = []
    for behaviour, tests in BEHAVIOURS[subject].items():
        assert tests, f"{subject}: {behaviour!r} has no test"
        named = [test.partition("::") for test in tests]
        gone += [f"{behaviour!r}: {short}::{name}" for short, _, name in named if name not in names_in(PATHS[short])]
    assert gone == []


def test_every_path_is_used() -> None:
    used = {test.partition("::")[0] for behaviours in BEHAVIOURS.values() for tests in behaviours.values() for test in tests}
    assert used == set(PATHS)
