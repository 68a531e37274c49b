from __future__ import annotations

import sys
from pathlib import Path

import importlib_metadata
import pytest

from inset.plugins import PluginHost, PluginState
from inset.plugins.discovery import discover
from inset.testing.plugin_site import PluginSite


def test_core_comes_first_and_the_others_by_name(site: PluginSite) -> None:
    for name in ("zebra", "Ant", "ba_dger"):
        site.install(name)
    assert [candidate.name for candidate in discover(site.distributions())] == ["inset", "ant", "ba-dger", "zebra"]


def test_no_distributions_give_a_core_without_plugins() -> None:
    (core,) = discover(())
    assert core.is_builtin


def test_installed_core_is_found_through_its_entry_point() -> None:
    entries = importlib_metadata.entry_points(group="inset", name="inset")
    assert [entry.value for entry in entries] == [discover(())[0].target]
    assert discover()[0].distribution == "inset"
    assert discover()[0].requires


def test_discovery_imports_no_plugin(site: PluginSite) -> None:
    site.install("unread", code="raise AssertionError('imported')")
    assert len(discover(site.distributions())) == 2
    assert not any(name.startswith("unread") for name in sys.modules)


def test_copy_further_down_the_path_is_shadowed(tmp_path: Path) -> None:
    for folder, version in (("first", "2.0"), ("second", "1.0")):
        PluginSite(tmp_path / folder).install("one", version=version)
    found = importlib_metadata.Distribution.discover(path=[str(tmp_path / "first"), str(tmp_path / "second")])
    assert [candidate.version for candidate in discover(found)] == ["0.1.0", "2.0"]


def test_distribution_without_the_group_costs_no_parsing_of_its_metadata(site: PluginSite) -> None:
    site.install("other")
    (site.folder / "other-1.0.dist-info" / "entry_points.txt").write_text("[console_scripts]\nother = other:main\n")

    class Untouchable(importlib_metadata.PathDistribution):
        @property
        def metadata(self) -> importlib_metadata.PackageMetadata:
            raise AssertionError("parsed")

    assert len(discover([Untouchable(site.folder / "other-1.0.dist-info")])) == 1


@pytest.mark.parametrize(
    ("file", "text"),
    [
        ("METADATA", None),
        ("METADATA", b""),
        ("METADATA", b"Name: h\xff\n"),
        ("entry_points.txt", b"[inset]\nhalf\n"),
        ("entry_points.txt", b"[inset]\nhalf = \n"),
        ("entry_points.txt", b"[inset]\nh\xff = a\n"),
    ],
)
def test_unreadable_metadata_is_listed_and_harms_nobody_else(file: str, text: bytes | None, site: PluginSite) -> None:
    site.install("half")
    site.install("whole", code="@hookimpl\ndef register_models(registry): ...")
    path = site.folder / "half-1.0.dist-info" / file
    path.unlink() if text is None else path.write_bytes(text)
    core, *others = PluginHost(distributions=site.distributions()).report()
    states = [report.state for report in others]
    assert core.state is PluginState.LOADED
    assert sorted(states) == ["loaded", "set aside"]
    assert all(report.error for report in others if report.state is PluginState.SET_ASIDE)
