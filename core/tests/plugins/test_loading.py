"""One broken plugin after the other: the others work, and the report says what and why."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import NamedTuple

import pytest

from inset.config import PluginConfig
from inset.errors import ConfigError, DuplicateNameError, PluginContractError, PluginLoadError, UnknownNameError
from inset.plugins import PluginHost, PluginReport, PluginState
from inset.registry import normalize_name
from inset.testing.plugin_site import PluginSite

GOOD = """
    @hookimpl
    def register_models(registry):
        registry.register("GoodForConditionalGeneration", adapter="good.model:Good")
"""


def registering(architecture: str) -> str:
    return f"""
    @hookimpl
    def register_models(registry):
        registry.register({architecture!r}, adapter="some.model:Model")
    """


class Broken(NamedTuple):
    code: str
    stage: str
    says: str


BROKEN = {
    "raises": Broken("raise RuntimeError('out of cheese')", "import", "RuntimeError: out of cheese (broken.plugin, line 2)"),
    "exits": Broken("import sys\nsys.exit(3)", "import", "SystemExit: 3"),
    "raises-what-is-no-exception": Broken("class Skipped(BaseException): ...\nraise Skipped('no GPU')", "import", "Skipped: no GPU"),
    "raises-what-cannot-be-printed": Broken(
        "class Mute(Exception):\n    def __str__(self):\n        raise ValueError\nraise Mute", "import", "Mute: <exception str() failed>"
    ),
    "lacks-a-dependency": Broken("import no_such_module_at_all", "import", "No module named 'no_such_module_at_all'"),
    "is-not-python": Broken("def (:", "import", "SyntaxError"),
    "misspells-a-hook": Broken(
        "@hookimpl\ndef register_modles(registry): ...", "validate", "no hook 'register_modles'; did you mean 'register_models'?"
    ),
    "invents-a-hook": Broken("@hookimpl\ndef zzz(): ...", "validate", "The hooks are register_processors, register_models,"),
    "forgets-the-marker": Broken("def register_models(registry): ...", "validate", "'register_models' lacks its marker @hookimpl"),
    "takes-unknown-arguments": Broken("@hookimpl\ndef register_models(registry, engine): ...", "validate", "engine"),
    "wraps-a-hook": Broken(
        "@hookimpl(wrapper=True)\ndef register_models(registry):\n    return (yield)", "validate", "'register_models' is a wrapper"
    ),
    "raises-in-a-hook": Broken(
        "@hookimpl\ndef register_models(registry):\n    raise KeyError('x')", "register", "KeyError: 'x' (broken.plugin, line 4)"
    ),
    "exits-in-a-hook": Broken("@hookimpl\ndef register_models(registry):\n    raise SystemExit", "register", "SystemExit"),
    "calls-a-hook-wrongly": Broken("@hookimpl\ndef register_models(registry):\n    registry.register('A')", "register", "TypeError"),
    "registers-a-class": Broken(
        "@hookimpl\ndef register_models(registry):\n    registry.register('A', adapter=dict)", "register", "must be an import string"
    ),
    "registers-past-the-checks": Broken(
        "@hookimpl\ndef register_models(registry):\n    registry.add('A', 'a.b:C')", "register", "must be registered as a ModelRegistration"
    ),
    "registers-no-scheme": Broken(
        "@hookimpl\ndef register_media_connectors(registry):\n    registry.register('s3', factory='a.b:C', schemes='s3')",
        "register",
        "must be a tuple of lower-case URL schemes",
    ),
    "registers-one-name-twice": Broken(
        "@hookimpl\ndef register_models(registry):\n    for name in ('A-b', 'a_B'):\n        registry.register(name, adapter='a.b:C')",
        "register",
        "is claimed by broken 1.0 (plugin 'broken') and by broken 1.0 (plugin 'broken')",
    ),
    "returns-something": Broken("@hookimpl\ndef register_models(registry):\n    return {}", "register", "must return nothing, not dict"),
    "is-a-coroutine": Broken("@hookimpl\nasync def register_models(registry): ...", "register", "must return nothing, not coroutine"),
}


@pytest.mark.parametrize("case", BROKEN.values(), ids=BROKEN)
def test_broken_plugin_is_set_aside_with_stage_and_reason_while_another_works(
    case: Broken, site: PluginSite, make_host: Callable[..., PluginHost]
) -> None:
    site.install("broken", code=case.code)
    site.install("good", code=GOOD)
    host = make_host()
    reports = {report.name: report for report in host.report()}
    assert reports["broken"].state is PluginState.SET_ASIDE
    assert reports["broken"].stage == case.stage
    assert case.says in reports["broken"].error
    assert reports["broken"].hint
    assert reports["good"].state is PluginState.LOADED
    assert list(host.registries.models.view()) == ["goodforconditionalgeneration"]


def test_nothing_of_a_plugin_counts_when_a_later_hook_of_it_raises(site: PluginSite, make_host: Callable[..., PluginHost]) -> None:
    site.install("half", code=GOOD + "\n    @hookimpl\n    def register_checkpoints(registry):\n        raise ValueError\n")
    assert len(make_host().registries.models) == 0


def test_keyboard_interrupt_is_never_taken_for_a_fault_of_the_plugin(site: PluginSite, make_host: Callable[..., PluginHost]) -> None:
    site.install("pressed", code="raise KeyboardInterrupt")
    with pytest.raises(KeyboardInterrupt):
        make_host()


@pytest.mark.parametrize(
    ("requires", "says"),
    [
        (("inset>=0.2,<0.3",), "needs inset<0.3,>=0.2, and this is inset 0.1.0"),
        (("numpy",), "does not say which versions of inset"),
        ((), "does not say which versions of inset"),
        (("inset-llava>=0.1",), "does not say which versions of inset"),
        (("inset>=0.1; extra == 'serve'",), "does not say which versions of inset"),
        (("inset>=0.1; python_version < '3'",), "does not say which versions of inset"),
        (("inset>=0.1", "Inset[engine]>=7"), "needs inset>=7"),
        (("inset >= banana",), "InvalidRequirement: "),
        (("inset; nonsense == 'x'",), "InvalidRequirement: "),
        (("inset>=0.1; platform_release > 'x!'",), "does not say which versions of inset"),
    ],
)
def test_plugin_for_another_version_is_refused_without_importing_it(
    requires: tuple[str, ...], says: str, site: PluginSite, report_on: Callable[[str], PluginReport]
) -> None:
    site.install("other", requires=requires, code="raise AssertionError('imported')")
    report = report_on("other")
    assert (report.state, report.stage) == (PluginState.SET_ASIDE, "require")
    assert says in report.error
    assert "other.plugin" not in sys.modules


@pytest.mark.parametrize(
    "requires", ["inset", "inset[engine]>=0.1,<0.2", "INSET~=0.1", "inset @ file:///somewhere", "inset<1; python_version>'3'"]
)
def test_plugin_for_this_version_loads(requires: str, site: PluginSite, report_on: Callable[[str], PluginReport]) -> None:
    site.install("fitting", requires=["no such syntax at all", requires], code=GOOD)
    assert report_on("fitting").state is PluginState.LOADED


@pytest.mark.parametrize(
    ("module", "hint"),
    [
        ("torch.nn", "pip install 'inset[engine]' brings the module 'torch.nn'."),
        ("boto9", "Install what provides the module 'boto9', or reinstall needy with its dependencies."),
    ],
)
def test_hint_names_what_to_install(module: str, hint: str, site: PluginSite, report_on: Callable[[str], PluginReport]) -> None:
    site.install("needy", code=f"raise ModuleNotFoundError('no', name={module!r})")
    assert report_on("needy").hint == hint


def test_slow_import_is_reported_with_its_time(site: PluginSite, report_on: Callable[[str], PluginReport]) -> None:
    site.install("slow", code="import time\ntime.sleep(0.3)\n@hookimpl\ndef register_models(registry): ...")
    report = report_on("slow")
    assert report.state is PluginState.LOADED
    assert report.import_seconds >= 0.3
    assert "its import took" in report.hint


def test_plugin_that_registers_nothing_is_loaded_with_a_remark(site: PluginSite, report_on: Callable[[str], PluginReport]) -> None:
    site.install("idle")
    assert "It implements no hook, or registers nothing." in report_on("idle").hint


# Names that two claim


@pytest.mark.parametrize("second", ["My.Arch_1", "my-arch-1"])
def test_neither_of_two_plugins_that_claim_one_name_wins(second: str, site: PluginSite, make_host: Callable[..., PluginHost]) -> None:
    site.install("aaa", code=registering("my_arch_1"))
    site.install("zzz", code=registering(second))
    site.install("good", code=GOOD)
    host = make_host()
    reports = {report.name: report for report in host.report()}
    assert list(host.registries.models.view()) == ["goodforconditionalgeneration"]
    for name in ("aaa", "zzz"):
        assert (reports[name].state, reports[name].stage) == (PluginState.SET_ASIDE, "names")
        assert "aaa 1.0 (plugin 'aaa')" in reports[name].error
        assert "zzz 1.0 (plugin 'zzz')" in reports[name].error
        assert f"--no-plugin {name}" in reports[name].error
        assert [normalize_name(item.name) for item in reports[name].provides] == ["my-arch-1"]


def test_leaving_one_of_two_claimants_out_settles_the_clash(site: PluginSite, make_host: Callable[..., PluginHost]) -> None:
    site.install("aaa", code=registering("A"))
    site.install("zzz", code=registering("A"))
    owner = make_host(PluginConfig(no_plugins=("AAA",))).registries.models.owner_of("A")
    assert owner is not None
    assert owner.plugin == "zzz"


def test_naming_both_claimants_is_an_error_at_start_up(site: PluginSite, make_host: Callable[..., PluginHost]) -> None:
    site.install("aaa", code=registering("A"))
    site.install("zzz", code=registering("A"))
    with pytest.raises(DuplicateNameError, match=r"aaa 1\.0.*zzz 1\.0.*--no-plugin"):
        make_host(PluginConfig(plugins=("aaa", "zzz")))


CLAIMS_HTTP = """
    @hookimpl
    def register_media_connectors(registry):
        registry.register("HTTP", factory="evil.media:Connector", schemes=("http",))
"""


def test_core_keeps_its_names_and_takes_no_third_plugin_down(site: PluginSite, make_host: Callable[..., PluginHost]) -> None:
    site.install("aaa", code=CLAIMS_HTTP + registering("A"))
    site.install("good", code=registering("A"))
    host = make_host()
    owner = host.registries.media_connectors.owner_of("http")
    assert owner is not None
    assert owner.plugin == "inset"
    states = {report.name: report.state for report in host.report()}
    assert states == {"inset": PluginState.LOADED, "aaa": PluginState.SET_ASIDE, "good": PluginState.LOADED}


def test_two_plugins_of_one_name_are_both_set_aside_unimported(site: PluginSite, make_host: Callable[..., PluginHost]) -> None:
    site.install("My-Plugin", distribution="first", code="raise AssertionError('imported')")
    site.install("my_plugin", distribution="second", code="raise AssertionError('imported')")
    reports = [report for report in make_host().report() if report.name == "my-plugin"]
    assert [report.stage for report in reports] == ["discover", "discover"]
    assert all("first 1.0" in report.error and "second 1.0" in report.error for report in reports)
    assert all("Uninstall one of them" in report.error for report in reports)


def test_naming_a_plugin_that_is_there_twice_is_an_error_at_start_up(site: PluginSite, make_host: Callable[..., PluginHost]) -> None:
    site.install("one", distribution="first")
    site.install("One", distribution="second")
    with pytest.raises(DuplicateNameError, match="Uninstall one of them, first or second"):
        make_host(PluginConfig(plugins=("one",)))


def test_name_of_the_core_is_reserved(site: PluginSite, make_host: Callable[..., PluginHost]) -> None:
    site.install("Inset", distribution="impostor", code="raise AssertionError('imported')")
    core, impostor = make_host().report()
    assert (core.distribution, core.state) == ("inset", PluginState.LOADED)
    assert (impostor.distribution, impostor.state, impostor.stage) == ("impostor", PluginState.SET_ASIDE, "discover")


# What the operator wants


def test_empty_list_of_plugins_leaves_the_built_ins_alone(site: PluginSite, make_host: Callable[..., PluginHost]) -> None:
    site.install("unwanted", code="raise AssertionError('imported')")
    core, unwanted = make_host(PluginConfig(plugins=())).report()
    assert core.state is PluginState.LOADED
    assert unwanted.state is PluginState.LEFT_OUT


def test_only_named_plugins_load_whatever_the_spelling(site: PluginSite, make_host: Callable[..., PluginHost]) -> None:
    site.install("my-good", code=GOOD)
    site.install("other", code="raise AssertionError('imported')")
    states = {report.name: report.state for report in make_host(PluginConfig(plugins=("My_Good",))).report()}
    assert states == {"inset": PluginState.LOADED, "my-good": PluginState.LOADED, "other": PluginState.LEFT_OUT}


def test_environment_names_plugins_when_no_options_are_given(site: PluginSite, monkeypatch: pytest.MonkeyPatch) -> None:
    site.install("good", code=GOOD)
    site.install("other", code="raise AssertionError('imported')")
    monkeypatch.setenv("INSET_PLUGINS", "good")
    host = PluginHost(distributions=site.distributions())
    assert [plugin.distribution for plugin in host.resolved] == ["good", "inset"]


@pytest.mark.parametrize(
    ("config", "error", "says"),
    [
        (PluginConfig(plugins=("absent",)), UnknownNameError, "no plugin 'absent'. Installed: broken, inset"),
        (PluginConfig(no_plugins=("absent",)), UnknownNameError, "no plugin 'absent'. Installed: broken, inset"),
        (PluginConfig(no_plugins=("inset",)), ConfigError, "the core's own"),
        (PluginConfig(plugins=("broken",), no_plugins=("Broken",)), ConfigError, "named as well"),
        (PluginConfig(plugins=("broken",)), PluginLoadError, r"'broken' of broken 1.0 cannot be loaded \(import\): RuntimeError: no"),
        (PluginConfig(strict_plugins=True), PluginLoadError, r"'broken' of broken 1.0 cannot be loaded \(import\): RuntimeError: no"),
    ],
)
def test_start_up_fails_where_the_operators_wish_cannot_be_fulfilled(
    config: PluginConfig, error: type[Exception], says: str, site: PluginSite, make_host: Callable[..., PluginHost]
) -> None:
    site.install("broken", code="raise RuntimeError('no')")
    with pytest.raises(error, match=says):
        make_host(config)
    failure = make_host(config, tolerant=True).failure
    assert isinstance(failure, error)


def test_strict_start_up_names_every_fault(site: PluginSite, make_host: Callable[..., PluginHost]) -> None:
    site.install("aaa", code="raise RuntimeError('first')")
    site.install("bbb", code="@hookimpl\ndef register_modles(registry): ...")
    with pytest.raises(PluginLoadError, match=r"(?s)first.*register_modles"):
        make_host(PluginConfig(strict_plugins=True))


def test_entry_point_that_names_no_module_is_a_fault_of_the_plugin(site: PluginSite, make_host: Callable[..., PluginHost]) -> None:
    site.install("object", code=GOOD)
    info = site.folder / "object-1.0.dist-info" / "entry_points.txt"
    info.write_text("[inset]\nobject = object.plugin:thing\n")
    failure = make_host(PluginConfig(plugins=("object",)), tolerant=True).failure
    assert isinstance(failure, PluginContractError)
    assert "must name a module" in str(failure)
