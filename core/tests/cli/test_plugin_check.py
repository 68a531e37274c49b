"""`inset plugins check`: what a plugin registers is loaded, and tried as far as it can be without a network or a checkpoint."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from inset.testing.plugin_site import PluginSite

Run = Callable[..., Any]

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


def check_decoder(answer: str, site: PluginSite, run: Run) -> Any:
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
