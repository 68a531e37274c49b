from __future__ import annotations

import dataclasses
import json
from collections.abc import Callable
from pathlib import Path

import pytest

from inset.checkpoint import Checkpoint
from inset.config import PluginConfig
from inset.errors import ConfigError, PluginContractError, UnknownNameError
from inset.plugins import PluginHost, Registries, get_default_host
from inset.plugins.checks import HOOKS
from inset.registry import ProcessorRegistry
from inset.testing.plugin_site import PluginSite

MakeHost = Callable[..., PluginHost]


def checkpoint(model_type: str = "pictures") -> Checkpoint:
    config = {"model_type": model_type, "architectures": ["Pictures"]}
    return Checkpoint(folder=Path("pictures"), config=config, chat_template="{{ messages }}" * 1000)


ANSWERS = """
@hookimpl
def get_media_io(modality, info):
    return {answer}
"""
CLAIMS = """
@hookimpl
def register_processors(registry):
    registry.register("pictures", processor="a.b:P", info="a.b:I", dummy_inputs="a.b:D")
"""


def ask(host: PluginHost, model_type: str = "pictures", owner: str | None = None) -> object:
    return host.get_media_io("smell", checkpoint(model_type), owner=owner)


# One test for each hook: what it is given, and where its registrations arrive


def test_hook_register_processors(site: PluginSite, make_host: MakeHost) -> None:
    site.install("one", code=CLAIMS)
    registration = make_host().registries.processors.get("pictures")
    assert dataclasses.astuple(registration) == ("a.b:P", "a.b:I", "a.b:D")


def test_hook_register_models(site: PluginSite, make_host: MakeHost) -> None:
    site.install("one", code="@hookimpl\ndef register_models(registry):\n    registry.register('Arch', adapter='a.b:Adapter')")
    assert make_host().registries.models.get("Arch").adapter == "a.b:Adapter"


def test_hook_register_media_connectors(site: PluginSite, make_host: MakeHost) -> None:
    code = "registry.register('s3', factory='a.b:S3', schemes=['s3'], dials_itself=True)"
    site.install("one", code=f"@hookimpl\ndef register_media_connectors(registry):\n    {code}")
    host = make_host()
    registration = host.registries.media_connectors.get("S3")
    assert (registration.schemes, registration.dials_itself) == (("s3",), True)
    (item,) = host.report()[1].provides
    assert "enabled by --media-connector s3" in item.detail
    assert "dials by itself" in item.detail


def test_hook_register_processor_caches(site: PluginSite, make_host: MakeHost) -> None:
    code = "registry.register('tape', front='a.b:F', engine='a.b:E', supports_multiple_fronts=True)"
    site.install("one", code=f"@hookimpl\ndef register_processor_caches(registry):\n    {code}")
    assert make_host().registries.processor_caches.get("tape").supports_multiple_fronts


def test_hook_register_checkpoints(site: PluginSite, make_host: MakeHost) -> None:
    site.install(
        "one", code="@hookimpl\ndef register_checkpoints(registry):\n    registry.register('tiny', package='one', folder='weights')"
    )
    assert make_host().registries.checkpoints.get("tiny").locate() == site.folder / "one" / "weights"


def test_hook_get_media_io(site: PluginSite, make_host: MakeHost) -> None:
    site.install("one", code="@hookimpl\ndef get_media_io(modality, info):\n    return dict if info.model_type == 'pictures' else None")
    host = make_host()
    assert ask(host) is dict
    assert [item.kind for item in host.report()[1].provides] == ["media IO"]


def test_every_registry_has_its_hook() -> None:
    assert {hook for hook, _ in Registries()} | {"get_media_io"} == set(HOOKS)


# get_media_io


def test_plugin_that_registered_the_processor_is_asked_first(site: PluginSite, make_host: MakeHost) -> None:
    site.install("aaa", code=ANSWERS.format(answer="list"))
    site.install("zzz", code=ANSWERS.format(answer="dict") + CLAIMS)
    host = make_host()
    assert ask(host) is dict
    assert ask(host, "others") is list
    assert ask(host, "others", owner="zzz") is dict


def test_plugin_that_answers_none_leaves_the_choice_to_the_next(site: PluginSite, make_host: MakeHost) -> None:
    site.install("aaa", code=ANSWERS.format(answer="None") + CLAIMS)
    site.install("bbb", code=ANSWERS.format(answer="dict"))
    assert ask(make_host()) is dict


def test_modality_that_nobody_reads_is_an_error_with_those_who_were_asked(site: PluginSite, make_host: MakeHost) -> None:
    site.install("aaa", code=ANSWERS.format(answer="None"))
    with pytest.raises(UnknownNameError, match=r"modality 'smell'.*asked: aaa, inset"):
        ask(make_host())


@pytest.mark.parametrize(("answer", "says"), [("1 / 0", "ZeroDivisionError"), ("'text'", "must return a factory or None, not str")])
def test_wrong_answer_is_an_error_and_not_passed_over(answer: str, says: str, site: PluginSite, make_host: MakeHost) -> None:
    site.install("aaa", code=ANSWERS.format(answer=answer))
    with pytest.raises(PluginContractError, match=says):
        ask(make_host())


# Two cores in one process


def test_two_cores_with_different_plugins_live_in_one_process(site: PluginSite, make_host: MakeHost) -> None:
    site.install("one", code="@hookimpl\ndef register_models(registry):\n    registry.register('A', adapter='a.b:A')")
    with_it, without_it = make_host(), make_host(PluginConfig(plugins=()))
    assert "A" in with_it.registries.models
    assert "A" not in without_it.registries.models


def test_default_host_is_one_and_read_from_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("INSET_PLUGINS", "")
    get_default_host.cache_clear()
    try:
        assert get_default_host() is get_default_host()
        assert [plugin.distribution for plugin in get_default_host().resolved] == ["inset"]
    finally:
        get_default_host.cache_clear()


def test_registry_kept_by_a_plugin_reaches_no_core(site: PluginSite, make_host: MakeHost) -> None:
    site.install("one", code="KEPT = []\n@hookimpl\ndef register_processors(registry):\n    KEPT.append(registry)")
    host = make_host()
    import one.plugin  # type: ignore[import-not-found]

    kept: ProcessorRegistry = one.plugin.KEPT[0]
    kept.register("late", processor="a.b:P", info="a.b:I", dummy_inputs="a.b:D")
    assert len(host.registries.processors) == 0


# The resolved set


def test_same_plugins_have_one_fingerprint_and_any_difference_another(site: PluginSite, make_host: MakeHost) -> None:
    site.install("one")
    site.install("two", code="raise RuntimeError")
    first = make_host()
    assert first.fingerprint() == make_host(PluginConfig(plugins=("one",))).fingerprint(), "what is not loaded does not count"
    assert len(first.fingerprint()) == 64
    assert first.fingerprint() != make_host(PluginConfig(plugins=())).fingerprint()
    (site.folder / "one-1.0.dist-info" / "METADATA").write_text("Name: one\nVersion: 1.1\nRequires-Dist: inset\n")
    assert first.fingerprint() != make_host().fingerprint()


def test_process_with_other_plugins_is_refused_with_both_sets(site: PluginSite, make_host: MakeHost) -> None:
    site.install("one")
    here, there = make_host(), make_host(PluginConfig(plugins=()))
    message = json.loads(json.dumps(list(reversed(here.resolved))))
    here.check_fingerprint(message)
    with pytest.raises(ConfigError) as raised:
        here.check_fingerprint(there.resolved)
    assert "here:  inset 0.1.0 (inset = inset.builtin), one 1.0 (one = one.plugin)\n" in str(raised.value)
    assert "there: inset 0.1.0 (inset = inset.builtin)\n" in str(raised.value)


# Tracing


def test_traced_hooks_print_call_implementation_and_result(
    site: PluginSite, make_host: MakeHost, capsys: pytest.CaptureFixture[str]
) -> None:
    site.install("one", code=ANSWERS.format(answer="dict") + CLAIMS)
    make_host(PluginConfig(trace_hooks=True)).get_media_io("smell", checkpoint())
    lines = capsys.readouterr().err.splitlines()
    call = lines.index("inset hook: register_processors(registry=<ProcessorRegistry of processors: empty>)")
    assert lines[call + 1] == "inset hook:   implemented by one in one.plugin"
    assert lines[call + 2] == "inset hook:   register_processors filled <ProcessorRegistry of processors: pictures>"
    assert "inset hook:   get_media_io returned <class 'dict'>" in lines
    assert all(len(line) < 500 for line in lines), "a checkpoint's configs are cut short"


def test_traced_hook_that_raises_prints_what_it_raised(site: PluginSite, make_host: MakeHost, capsys: pytest.CaptureFixture[str]) -> None:
    site.install("one", code="@hookimpl\ndef register_models(registry):\n    raise KeyError('x')")
    make_host(PluginConfig(trace_hooks=True))
    assert "inset hook:   register_models raised KeyError('x')" in capsys.readouterr().err.splitlines()
