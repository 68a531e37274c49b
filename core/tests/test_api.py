from __future__ import annotations

import subprocess
import sys

import pytest

import inset.api
from inset import errors, hookspecs, registry


def test_every_name_is_there() -> None:
    for name in inset.api.__all__:
        assert getattr(inset.api, name) is not None
    assert set(inset.api.__all__) == set(dir(inset.api))


def test_name_that_is_not_offered_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="no attribute 'Nothing'"):
        inset.api.Nothing  # type: ignore[attr-defined]  # noqa: B018


def test_door_has_all_errors_and_registries() -> None:
    registries = {name for name in registry.__all__ if name.endswith("Registry") and name != "Registry"}
    assert set(errors.__all__) | registries <= set(inset.api.__all__)


def test_door_has_every_type_that_a_hook_takes_or_gives() -> None:
    words = " ".join(
        str(annotation)
        for name in hookspecs.__all__
        if name.startswith(("register_", "get_"))
        for annotation in getattr(hookspecs, name).__annotations__.values()
    )
    types = set(words.replace("|", " ").split()) - {"None", "str"}
    assert types
    assert types <= set(inset.api.__all__)


def test_lists_of_names_agree() -> None:
    assert set(inset.api._HOMES) == set(inset.api.__all__)
    assert len(inset.api.__all__) == len(set(inset.api.__all__))


def test_importing_the_door_imports_nothing_behind_it() -> None:
    code = "import sys, inset.api; print(sorted({'torch', 'transformers', 'numpy', 'av', 'PIL', 'aiohttp'} & set(sys.modules)))"
    ended = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=True)
    assert ended.stdout == "[]\n"
