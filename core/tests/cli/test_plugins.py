"""`inset plugins list` and `why` over a folder of fake plugins beside what is installed."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from typing import Any

import pytest

from inset.testing.plugin_site import PluginSite

GOOD = """
    @hookimpl
    def register_models(registry):
        registry.register("Good", adapter="good.model:Good")

    @hookimpl
    def register_media_connectors(registry):
        registry.register("ark", factory="good.media:Connector", schemes=("ark",))
"""

Run = Callable[..., Any]


def listed(run: Run, *words: str, **environment: str) -> dict[str, Any]:
    ended = run("list", "--json", *words, **environment)
    return {plugin["name"]: plugin for plugin in json.loads(ended.stdout)["plugins"]}


def test_list_says_what_is_loaded_and_why_the_rest_is_not(site: PluginSite, run: Run) -> None:
    site.install("good", code=GOOD)
    site.install("raises", code="raise RuntimeError('out of cheese')")
    site.install("exits", code="import os, sys\nsys.exit(0)")
    site.install("clash-a", code=GOOD.replace("Good", "Clash").replace("ark", "clash"))
    site.install("clash-b", code=GOOD.replace("Good", "clash").replace("ark", "other"))
    ended = run("list")
    assert (ended.returncode, ended.stderr) == (0, "")
    lines = {line.split()[0]: line for line in ended.stdout.splitlines() if not line.startswith(" ")}
    assert "loaded" in lines["good"]
    assert "model architecture: Good" in lines["good"]
    for name, says in (("raises", "RuntimeError: out of cheese"), ("exits", "SystemExit"), ("clash-a", "clash-b"), ("clash-b", "clash-a")):
        assert "set aside" in lines[name]
        assert says in ended.stdout


def test_json_survives_a_plugin_that_prints(site: PluginSite, run: Run) -> None:
    site.install("chatty", code="print('hello')" + GOOD.replace("\n    ", "\n"))
    plugin = listed(run)["chatty"]
    assert plugin["state"] == "loaded"
    assert {"kind": "model architecture", "name": "Good", "detail": ""} in plugin["provides"]
    assert plugin["stage"] is None


def test_json_of_a_failed_plugin_has_stage_and_error(site: PluginSite, run: Run) -> None:
    site.install("other", requires=["inset>=9"])
    plugin = listed(run)["other"]
    assert (plugin["state"], plugin["stage"]) == ("set aside", "require")
    assert "inset>=9" in plugin["error"]
    assert "pip install --upgrade other" in plugin["hint"]


@pytest.mark.parametrize(
    ("words", "environment"),
    [
        (["--plugin", "good"], {}),
        (["--plugin", "Good"], {"INSET_PLUGINS": "other"}),
        ([], {"INSET_PLUGINS": "good"}),
        (["--plugin", "good,inset"], {}),
        (["--no-plugin", "other"], {"INSET_NO_PLUGINS": "good"}),
    ],
)
def test_command_line_wins_over_the_environment(words: list[str], environment: dict[str, str], site: PluginSite, run: Run) -> None:
    site.install("good", code=GOOD)
    site.install("other", code="raise AssertionError('imported')")
    plugins = listed(run, *words, **environment)
    assert (plugins["good"]["state"], plugins["other"]["state"]) == ("loaded", "left out")


def test_empty_environment_variable_leaves_the_built_ins_alone(site: PluginSite, run: Run) -> None:
    site.install("good", code=GOOD)
    states = {name: plugin["state"] for name, plugin in listed(run, INSET_PLUGINS="").items()}
    assert states.pop("inset") == "loaded"
    assert set(states.values()) == {"left out"}


@pytest.mark.parametrize(
    ("words", "environment", "says"),
    [
        (["--plugin", "raises"], {}, "'raises' of raises 1.0 cannot be loaded"),
        (["--strict-plugins"], {}, "'raises' of raises 1.0 cannot be loaded"),
        ([], {"INSET_STRICT_PLUGINS": "1"}, "'raises' of raises 1.0 cannot be loaded"),
        (["--plugin", "absent"], {}, "There is no plugin 'absent'. Installed:"),
    ],
)
def test_list_shows_everything_even_where_start_up_would_fail(
    words: list[str], environment: dict[str, str], says: str, site: PluginSite, run: Run
) -> None:
    site.install("raises", code="raise RuntimeError('out of cheese')")
    ended = run("list", *words, **environment)
    assert ended.returncode == 1
    assert ended.stdout.count("raises 1.0") == 1
    assert ended.stderr.startswith("inset: With these options start-up fails.")
    assert says in ended.stderr


def test_trace_goes_to_standard_error_and_leaves_the_json_alone(site: PluginSite, run: Run) -> None:
    site.install("good", code=GOOD)
    ended = run("list", "--json", INSET_TRACE_HOOKS="1")
    assert "good" in {plugin["name"] for plugin in json.loads(ended.stdout)["plugins"]}
    assert "inset hook: register_models(" in ended.stderr


def test_why_tells_what_a_plugin_provides_and_how_it_is_enabled(site: PluginSite, run: Run) -> None:
    site.install("good", code=GOOD, distribution="Good-Stuff")
    for name in ("good", "GOOD", "good_stuff"):
        ended = run("why", name)
        assert ended.returncode == 0
        assert ended.stdout.startswith("good (Good-Stuff 1.0) is loaded.")
        assert "media connector ark (ark; enabled by --media-connector ark)" in ended.stdout


def test_why_tells_the_stage_the_reason_and_what_to_do(site: PluginSite, run: Run) -> None:
    site.install("lacking", code="import no_such_module_at_all")
    said = run("why", "lacking").stdout
    assert "is set aside" in said
    assert "failed at the stage 'import'" in said
    assert "Install what provides the module 'no_such_module_at_all'" in said


@pytest.mark.parametrize("action", ["why", "check"])
def test_unknown_name_is_2_and_lists_what_there_is(action: str, site: PluginSite, run: Run) -> None:
    site.install("good", code=GOOD)
    ended = run(action, "goood")
    assert (ended.returncode, ended.stdout) == (2, "")
    assert "There is no plugin 'goood'. Installed: inset," in ended.stderr
    assert "good" in ended.stderr


def test_listing_imports_nothing_heavy(site: PluginSite) -> None:
    """The list is what people look at when something is broken, and what every script calls."""
    for number in range(100):
        site.install(f"fake-{number}", code=GOOD.replace("Good", f"Good{number}").replace("ark", f"ark{number}"))
    code = (
        "import sys; from inset.cli import main; status = main(['plugins', 'list']);"
        "heavy = {'torch', 'transformers', 'numpy', 'pydantic', 'aiohttp', 'av', 'PIL', 'soundfile', 'soxr', 'msgspec', 'zmq', 'asyncio'};"
        "print(sorted(heavy & set(sys.modules)), file=sys.stderr); sys.exit(status)"
    )
    ended = subprocess.run(
        [sys.executable, "-c", code],
        env=dict(os.environ) | {"PYTHONPATH": str(site.folder)},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert (ended.returncode, ended.stderr) == (0, "[]\n")
    assert ended.stdout.count("fake-") >= 100
