from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from inset.config import PluginConfig
from inset.plugins import PluginHost, PluginReport
from inset.testing.plugin_site import PluginSite, open_plugin_site


@pytest.fixture
def site(tmp_path: Path) -> Iterator[PluginSite]:
    """A folder of fake plugins on sys.path."""
    with open_plugin_site(tmp_path) as site:
        yield site


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
