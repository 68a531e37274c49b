from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from inset.config import PluginConfig
from inset.plugins import PluginHost, PluginReport
from inset.testing.plugin_site import PluginSite


@pytest.fixture
def site(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[PluginSite]:
    """A folder of fake plugins on sys.path; what they import is forgotten afterwards."""
    monkeypatch.syspath_prepend(tmp_path)
    before = set(sys.modules)
    yield PluginSite(tmp_path)
    for name in set(sys.modules) - before:
        if str(getattr(sys.modules[name], "__file__", None) or "").startswith(str(tmp_path)):
            del sys.modules[name]


HostMaker = Callable[..., PluginHost]


@pytest.fixture
def make_host(site: PluginSite) -> HostMaker:
    """Builds a host over the fake plugins and the core alone."""

    def make(config: PluginConfig | None = None, *, tolerant: bool = False) -> PluginHost:
        return PluginHost(config or PluginConfig(), distributions=site.distributions(), tolerant=tolerant)

    return make


@pytest.fixture
def report_on(make_host: HostMaker) -> Callable[[str], PluginReport]:
    """Loads everything and returns the report on one plugin."""

    def report(name: str) -> PluginReport:
        return next(report for report in make_host().report() if report.name == name)

    return report
