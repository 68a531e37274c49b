from __future__ import annotations

import sys
from pathlib import Path

import pytest

from inset.errors import DuplicateNameError, MissingExtraError, PluginContractError, PluginLoadError, UnknownNameError
from inset.registry import ModelRegistration, ModelRegistry, Owner, load_object, normalize_name

OWNER = Owner("mine", "inset-mine", "1.2")


@pytest.mark.parametrize("name", ["Qwen2.5-VL", "qwen2-5_vl", " QWEN2__5.-vl "])
def test_names_compare_in_normal_form(name: str) -> None:
    assert normalize_name(name) == "qwen2-5-vl"


@pytest.mark.parametrize("name", ["", "  ", None, 3])
def test_name_that_is_no_text_is_refused(name: str) -> None:
    with pytest.raises(PluginContractError, match="must be text"):
        normalize_name(name)


def test_registration_is_found_under_any_spelling_with_its_owner() -> None:
    registry = ModelRegistry()
    registry.owner = OWNER
    registry.register("My_Arch", adapter="a.b:C")
    assert registry.get("my-arch") == ModelRegistration("a.b:C")
    assert registry.owner_of("MY.ARCH") is OWNER
    assert "my.arch" in registry
    assert list(registry.view()) == ["my-arch"]


def test_unknown_name_lists_what_there_is() -> None:
    registry = ModelRegistry()
    registry.register("Here", adapter="a.b:C")
    with pytest.raises(UnknownNameError, match=r"no model architecture 'Gone'. Installed: Here\. .*inset plugins list"):
        registry.get("Gone")
    with pytest.raises(UnknownNameError, match="Installed: none"):
        ModelRegistry().owner_of("Gone")


def test_second_registration_of_a_name_names_both_owners_and_changes_nothing() -> None:
    registry = ModelRegistry()
    registry.register("One", adapter="a.b:C")
    registry.owner = OWNER
    with pytest.raises(DuplicateNameError, match=r"by code that names no plugin and by inset-mine 1\.2 \(plugin 'mine'\)"):
        registry.register("ONE", adapter="d.e:F")
    assert registry.get("one").adapter == "a.b:C"


def test_merge_takes_all_or_nothing() -> None:
    registry, staged = ModelRegistry(), ModelRegistry()
    registry.register("Taken", adapter="a.b:C")
    staged.register("Fresh", adapter="a.b:C")
    staged.register("taken", adapter="d.e:F")
    with pytest.raises(DuplicateNameError, match="'taken'"):
        registry.merge(staged)
    assert list(registry.view()) == ["taken"]


def test_view_cannot_be_written() -> None:
    with pytest.raises(TypeError):
        ModelRegistry().view()["x"] = ModelRegistration("a.b:C")  # type: ignore[index]


@pytest.mark.parametrize("target", ["a.b", "a.b:", ":C", "a b:C", "a.b:C.d", "", None, dict])
def test_what_is_no_import_string_is_refused(target: str) -> None:
    with pytest.raises(PluginContractError, match="must be an import string such as"):
        ModelRegistry().register("One", adapter=target)


def test_registration_of_another_kind_is_refused() -> None:
    with pytest.raises(PluginContractError, match="must be registered as a ModelRegistration, not str"):
        ModelRegistry().add("One", "a.b:C")  # type: ignore[arg-type]


def test_nothing_is_imported_before_it_is_loaded() -> None:
    registry = ModelRegistry()
    registry.register("One", adapter="colorsys:rgb_to_hsv")
    sys.modules.pop("colorsys", None)
    assert "colorsys" not in sys.modules
    assert callable(registry.load("one", "adapter"))


def test_missing_attribute_is_named() -> None:
    with pytest.raises(PluginContractError, match="'colorsys' has no attribute 'nothing'"):
        load_object("colorsys:nothing")


@pytest.mark.parametrize(
    ("module", "error", "says"),
    [
        ("import no_such_thing", PluginLoadError, r"inset-mine 1\.2 \(plugin 'mine'\) cannot be loaded from .*no_such_thing"),
        ("raise ValueError('no')", PluginLoadError, "ValueError: no"),
        ("raise SystemExit(1)", PluginLoadError, "SystemExit: 1"),
        ("pass", PluginLoadError, "has no attribute 'Model'"),
        ("raise ModuleNotFoundError('x', name='torch.nn')", MissingExtraError, r"needs torch\.nn: pip install 'inset\[engine\]'"),
    ],
)
def test_failing_import_names_the_plugin(
    module: str, error: type[Exception], says: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "failing_model.py").write_text(module)
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delitem(sys.modules, "failing_model", raising=False)
    registry = ModelRegistry()
    registry.owner = OWNER
    registry.register("One", adapter="failing_model:Model")
    with pytest.raises(error, match=says):
        registry.load("One", "adapter")
    monkeypatch.delitem(sys.modules, "failing_model", raising=False)


def test_repr_tells_what_is_inside() -> None:
    registry = ModelRegistry()
    assert repr(registry) == "<ModelRegistry of model architectures: empty>"
    registry.register("One", adapter="a.b:C")
    assert repr(registry) == "<ModelRegistry of model architectures: One>"
    assert len(registry) == 1
