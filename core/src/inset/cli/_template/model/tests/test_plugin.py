"""The package as Inset sees it."""

from __future__ import annotations

from inset.testing.import_budget import assert_light_import
from inset.testing.installed import assert_plugin_loads


def test_plugin_loads_with_all_that_it_registers() -> None:
    assert_plugin_loads("acme")


def test_plugin_module_is_light() -> None:
    assert_light_import("inset_acme.plugin")
