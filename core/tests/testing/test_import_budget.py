from __future__ import annotations

from pathlib import Path

import pytest

from inset.testing.import_budget import assert_light_import, measure_import


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    return tmp_path


def test_a_light_module_is_let_pass_and_measured(folder: Path) -> None:
    (folder / "light_one.py").write_text("import wave")
    cost = assert_light_import("light_one")
    assert {"light_one", "wave"} <= cost.modules
    assert cost.seconds > 0


def test_a_heavy_package_is_named_however_it_came(folder: Path) -> None:
    (folder / "heavy_one.py").write_text("import heavy_two")
    (folder / "heavy_two.py").write_text("import numpy.linalg")
    with pytest.raises(AssertionError, match="brings numpy"):
        assert_light_import("heavy_one")


def test_what_cannot_be_imported_says_why(folder: Path) -> None:
    (folder / "broken_one.py").write_text("raise RuntimeError('out of order')")
    with pytest.raises(AssertionError, match="out of order"):
        measure_import("broken_one")


def test_what_a_module_prints_does_not_disturb(folder: Path) -> None:
    (folder / "loud_one.py").write_text("print('hello')")
    assert "loud_one" in measure_import("loud_one").modules
