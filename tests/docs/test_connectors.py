"""The page on connectors says what they do."""

from __future__ import annotations

import inspect
import re
from pathlib import Path

import pytest

from inset.plugins import PluginHost
from inset.registry import load_object

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "how-to" / "connectors.md").read_text("utf-8")
README = (ROOT / "plugins" / "connectors" / "README.md").read_text("utf-8")
CONNECTORS = {
    name: registration
    for name, registration in PluginHost().registries.media_connectors.view().items()
    if registration.factory.startswith("inset_connectors.")
}


@pytest.mark.parametrize("name", CONNECTORS)
def test_connector_is_described_with_its_options(name: str) -> None:
    (section,) = [part for part in PAGE.split("\n## ") if f"`{name}`" in part.partition("\n")[0]]
    factory = load_object(CONNECTORS[name].factory)
    assert callable(factory)
    options = inspect.signature(factory).parameters
    assert re.findall(r"^\| `(\w+)` \|", section, re.MULTILINE) == list(options)
    assert f"`{name}`" in README


@pytest.mark.parametrize("name", CONNECTORS)
def test_every_scheme_is_shown(name: str) -> None:
    for scheme in CONNECTORS[name].schemes:
        assert scheme.removesuffix("*") in PAGE
