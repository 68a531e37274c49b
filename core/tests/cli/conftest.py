"""A folder of fake plugins, and the command that lists and checks them."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

from inset import cli
from inset.testing.plugin_site import PluginSite, open_plugin_site


class Ended(NamedTuple):
    returncode: int
    stdout: str
    stderr: str


Run = Callable[..., Ended]


@pytest.fixture
def site(tmp_path: Path) -> Iterator[PluginSite]:
    with open_plugin_site(tmp_path) as site:
        yield site


@pytest.fixture
def run(site: PluginSite, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Run:
    """Runs `inset plugins WORDS` in this process, with nothing of ours in the environment but what is given."""

    def run_plugins(*words: str, **environment: str) -> Ended:
        for name in [name for name in os.environ if name.startswith("INSET_")]:
            monkeypatch.delenv(name)
        for name, value in environment.items():
            monkeypatch.setenv(name, value)
        capsys.readouterr()
        status = cli.main(["plugins", *words])
        return Ended(status, *capsys.readouterr())

    return run_plugins
