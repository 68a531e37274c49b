"""`inset plugins` over a folder of fake plugins beside what is installed."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from inset import cli
from inset.testing.plugin_site import PluginSite, open_plugin_site

GOOD = """
    @hookimpl
    def register_models(registry):
        registry.register("Good", adapter="good.model:Good")

    @hookimpl
    def register_media_connectors(registry):
        registry.register("ark", factory="good.media:Connector", schemes=("ark",))
"""


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


CONNECTOR = """
from inset.api import MediaConnector, MediaFetchError

class Connector(MediaConnector):
    schemes = ("ark",)
    async def open(self, url, limits):
        raise MediaFetchError(f"{url.where} has sunk.")

class Demanding(Connector):
    def __init__(self, *, harbour): ...

class Forgetful(Connector):
    async def open(self, url, limits): ...

class Careless(Connector):
    async def open(self, url, limits):
        return {}[url.host]

class Talkative(Connector):
    async def open(self, url, limits):
        raise MediaFetchError(f"{url.text} has sunk.")

class Stuck(Connector):
    async def aopen(self):
        raise KeyError("anchor")

class Abstract(MediaConnector):
    schemes = ("ark",)

class Other: ...

def factory():
    return Connector()

def empty_factory(): ...

number = 7
"""


def install_connector(site: PluginSite, registers: str) -> None:
    code = f"@hookimpl\ndef register_media_connectors(registry):\n    registry.register('ark', {registers})"
    site.install("brings-ark", code=code)
    (site.folder / "brings_ark" / "media.py").write_text(CONNECTOR)


@pytest.mark.parametrize("factory", ["Connector", "factory"])
def test_check_loads_every_part_and_tells_its_cost(factory: str, site: PluginSite, run: Run) -> None:
    install_connector(site, f"factory='brings_ark.media:{factory}', schemes=['ark']")
    ended = run("check", "brings-ark")
    assert ended.returncode == 0, ended.stdout + ended.stderr
    assert "media connector ark factory: ok (" in ended.stdout
    assert "media connector ark without a network: ok (" in ended.stdout
    assert " ms, " in ended.stdout
    assert ended.stdout.endswith("brings-ark: everything that it registers loads, and what can be tried here works.\n")


@pytest.mark.parametrize(
    ("registers", "says"),
    [
        ("factory='no_such_module_at_all:C', schemes=['ark']", "No module named 'no_such_module_at_all'"),
        ("factory='brings_ark.media:Gone', schemes=['ark']", "has no attribute 'Gone'"),
        ("factory='brings_ark.media:number', schemes=['ark']", "must be a MediaConnector, not int"),
        ("factory='brings_ark.media:Other', schemes=['ark']", "Other must be a MediaConnector"),
        ("factory='brings_ark.media:Abstract', schemes=['ark']", "Abstract lacks open"),
        ("factory='brings_ark.media:Connector', schemes=['ark', 'arks']", "registered for schemes that it does not list: arks"),
    ],
)
def test_check_fails_where_a_part_is_not_what_it_must_be(registers: str, says: str, site: PluginSite, run: Run) -> None:
    install_connector(site, registers)
    ended = run("check", "brings-ark")
    assert ended.returncode == 1
    assert "media connector ark factory: FAILED:" in ended.stdout
    assert "media connector ark without a network: not tried: it does not load" in ended.stdout
    assert says in ended.stdout
    assert ended.stdout.endswith("brings-ark: 1 of its parts failed.\n")


@pytest.mark.parametrize(
    ("factory", "says"),
    [
        ("empty_factory", "gave a NoneType, not a MediaConnector"),
        ("Forgetful", "The connector for ark: gave a NoneType, not a ByteStream."),
        ("Careless", "The connector for ark: failed (KeyError)."),
        ("Talkative", "shows more than scheme and host"),
        ("Stuck", "The connector Stuck cannot be opened (KeyError)."),
    ],
)
def test_check_fails_where_a_connector_answers_a_url_in_a_way_that_none_may(factory: str, says: str, site: PluginSite, run: Run) -> None:
    install_connector(site, f"factory='brings_ark.media:{factory}', schemes=['ark']")
    ended = run("check", "brings-ark")
    assert ended.returncode == 1
    assert "media connector ark without a network: FAILED:" in ended.stdout
    assert says in ended.stdout
    assert "b0a7c0de" not in ended.stdout


@pytest.mark.parametrize(
    ("registers", "says"),
    [
        ("factory='brings_ark.media:Demanding', schemes=['ark']", "required keyword-only argument: 'harbour'"),
        ("factory='brings_ark.media:Forgetful', schemes=['ark'], dials_itself=True", "it opens connections by itself"),
    ],
)
def test_check_says_what_it_could_not_try(registers: str, says: str, site: PluginSite, run: Run) -> None:
    install_connector(site, registers)
    ended = run("check", "brings-ark")
    assert ended.returncode == 0
    assert "media connector ark without a network: not tried: " in ended.stdout
    assert says in ended.stdout


HOOK = """
@hookimpl
def register_processors(registry):
    registry.register("ark", processor="brings_io.io:P", info="brings_io.io:I", dummy_inputs="brings_io.io:D")

@hookimpl
def get_media_io(modality, info):
    from brings_io import io
    return io.answer(modality, info)
"""
DECODERS = """
from inset.api import ConfigError, DummyInputsBuilder, MultiModalProcessor, ProcessingInfo
from inset.api import ImageIO, VideoIO

P, I, D = MultiModalProcessor, ProcessingInfo, DummyInputsBuilder

class AnyOption(ImageIO):
    def __init__(self, options, config):
        super().__init__({}, config)

class Credulous(ImageIO):
    def load_bytes_ref(self, data, *, on_damage=None): ...

def needs_config(options, config):
    raise KeyError("fps")

def answer(modality, info):
    assert info.model_type == "ark"
    if modality == "image":
        return ANSWER

"""


def check_decoder(answer: str, site: PluginSite, run: Run) -> Ended:
    site.install("brings-io", code=HOOK)
    (site.folder / "brings_io" / "io.py").write_text(DECODERS.replace("ANSWER", answer))
    return run("check", "brings-io")


@pytest.mark.parametrize(
    ("answer", "says"),
    [
        ("ImageIO", "get_media_io image (ark): ok ("),
        ("None", ""),
        ("lambda options, config: None", "must give a MediaIO of the modality 'image', not None"),
        ("VideoIO", "must give a MediaIO of the modality 'image'"),
        ("needs_config", "The factory fails with default options: KeyError: 'fps'"),
        ("AnyOption", "An unknown option must be refused"),
        ("Credulous", "0 bytes that are no image must be refused with MediaDecodeError"),
        ("7", "must return a factory or None, not int"),
        ("info.config['fps']", "KeyError: 'fps'"),
    ],
)
def test_check_asks_for_every_decoder_and_tries_it(answer: str, says: str, site: PluginSite, run: Run) -> None:
    said = check_decoder(answer, site, run).stdout
    lines = [line for line in said.splitlines() if line.startswith("  get_media_io")]
    assert len(lines) == bool(says)
    assert says in "".join(lines)
    assert ("FAILED: " in "".join(lines)) == (answer not in ("ImageIO", "None"))


def test_check_does_not_blame_a_decoder_that_needs_more_of_a_checkpoint(site: PluginSite, run: Run) -> None:
    answer = "(_ for _ in ()).throw(ConfigError('There is no fps.'))"
    assert "get_media_io: not tried: it needs the configs of a checkpoint: There is no fps." in check_decoder(answer, site, run).stdout


def test_check_fails_for_a_plugin_that_is_set_aside(site: PluginSite, run: Run) -> None:
    site.install("raises", code="raise RuntimeError('out of cheese')")
    ended = run("check", "raises")
    assert ended.returncode == 1
    assert "out of cheese" in ended.stdout


def test_check_reads_the_folder_of_a_shipped_checkpoint(site: PluginSite, run: Run) -> None:
    site.install(
        "ships", code="@hookimpl\ndef register_checkpoints(registry):\n    registry.register('tiny', package='ships', folder='tiny')"
    )
    assert "'tiny' is not a checkpoint folder" in run("check", "ships").stdout
    (site.folder / "ships" / "tiny").mkdir()
    (site.folder / "ships" / "tiny" / "config.json").write_text('{"model_type": "tiny", "architectures": ["Tiny"]}')
    assert run("check", "ships").returncode == 0


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
