"""What the installed packages register is really there, and of the right kind."""

from __future__ import annotations

import pytest

from inset.cli import main
from inset.plugins import PluginHost, PluginState

REPORTS = {report.name: report for report in PluginHost().report()}


@pytest.mark.parametrize("name", REPORTS)
def test_everything_that_an_installed_plugin_registers_loads(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert REPORTS[name].state is PluginState.LOADED
    assert main(["plugins", "check", name]) == 0, capsys.readouterr().out
