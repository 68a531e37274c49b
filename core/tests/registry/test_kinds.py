from __future__ import annotations

import dataclasses
from pathlib import Path

import pytest

from inset.errors import PluginContractError, UnknownNameError
from inset.registry import (
    CheckpointRegistry,
    ConnectorRegistration,
    MediaConnectorRegistry,
    ModelRegistration,
    ProcessorCacheRegistration,
    ProcessorCacheRegistry,
    ProcessorRegistration,
)


@pytest.mark.parametrize("schemes", ["s3", (), ("S3",), ("s3:",), (3,), ("",), ("3s",)])
def test_connector_without_proper_schemes_is_refused(schemes: tuple[str, ...]) -> None:
    with pytest.raises(PluginContractError, match="lower-case URL schemes"):
        MediaConnectorRegistry().register("s3", factory="a.b:C", schemes=schemes)


def test_connector_keeps_its_schemes_and_whether_it_dials_itself() -> None:
    registry = MediaConnectorRegistry()
    registry.register("s3", factory="a.b:C", schemes=["s3", "s3+http"], dials_itself=True)
    assert registry.get("s3") == ConnectorRegistration("a.b:C", ("s3", "s3+http"), dials_itself=True)


def test_processor_cache_serves_one_front_unless_it_says_more() -> None:
    registry = ProcessorCacheRegistry()
    registry.register("tape", front="a.b:F", engine="a.b:E")
    assert registry.get("tape") == ProcessorCacheRegistration("a.b:F", "a.b:E", supports_multiple_fronts=False)


def test_checkpoint_lies_in_its_package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "shipping_package").mkdir()
    (tmp_path / "shipping_package" / "__init__.py").write_text("raise AssertionError('imported')")
    monkeypatch.syspath_prepend(tmp_path)
    registry = CheckpointRegistry()
    registry.register("tiny", package="shipping_package", folder="checkpoints/tiny")
    assert registry.get("tiny").locate() == tmp_path / "shipping_package" / "checkpoints" / "tiny"


@pytest.mark.parametrize("package", ["no_such_package_at_all", "json.decoder", "colorsys"])
def test_checkpoint_of_a_package_that_is_not_there_is_an_error_when_it_is_used(package: str) -> None:
    registry = CheckpointRegistry()
    registry.register("tiny", package=package, folder="tiny")
    with pytest.raises(UnknownNameError, match=f"{package!r} of the checkpoint 'tiny' is not installed"):
        registry.get("tiny").locate()


@pytest.mark.parametrize(("package", "folder"), [("", "x"), ("x", ""), (None, "x"), ("x", None)])
def test_checkpoint_needs_package_and_folder(package: str, folder: str) -> None:
    with pytest.raises(PluginContractError, match="must be text"):
        CheckpointRegistry().register("tiny", package=package, folder=folder)


@pytest.mark.parametrize("kind", [ProcessorRegistration, ModelRegistration, ConnectorRegistration, ProcessorCacheRegistration])
def test_import_strings_are_fields(kind: type[ProcessorRegistration]) -> None:
    assert kind.import_strings
    assert set(kind.import_strings) <= {item.name for item in dataclasses.fields(kind)}
