from __future__ import annotations

import ast
import tomllib
from pathlib import Path

import pytest

from inset.cli import main
from inset.cli.new import KINDS, TEMPLATES


@pytest.mark.parametrize("kind", KINDS)
def test_every_spelling_of_the_name_is_filled_in(kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert main(["new", kind, "my-own-store"]) == 0
    folder = tmp_path / "inset-my-own-store"
    files = [path for path in folder.rglob("*") if path.is_file()]
    assert {"plugin.py", "pyproject.toml", "README.md", "py.typed", "test_conformance.py", "test_plugin.py"} <= {
        path.name for path in files
    }
    for path in files:
        assert "acme" not in path.read_text().lower(), path
        assert "acme" not in path.as_posix()
        if path.suffix == ".py":
            ast.parse(path.read_text())
    project = tomllib.loads((folder / "pyproject.toml").read_text())["project"]
    assert project["entry-points"]["inset"] == {"my-own-store": "inset_my_own_store.plugin"}
    assert "MyOwnStore" in (folder / "tests" / "test_conformance.py").read_text()


def test_a_name_may_hold_the_templates_own(tmp_path: Path) -> None:
    assert main(["new", "connector", "acme-store", "--folder", str(tmp_path / "there")]) == 0
    ast.parse((tmp_path / "there" / "tests" / "test_conformance.py").read_text())
    assert "class AcmeStoreConnector" in (tmp_path / "there" / "src" / "inset_acme_store" / "connector.py").read_text()


def test_it_says_what_to_do_next(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["new", "connector", "shelf", "--folder", str(tmp_path / "there")]) == 0
    assert "pip install --editable '.[test]' && pytest" in capsys.readouterr().out
    assert (tmp_path / "there" / "src" / "inset_shelf" / "plugin.py").is_file()


@pytest.mark.parametrize("name", ["Shelf", "9lives", "my_store", "a--b", "-a", "a/b", "", "é"])
def test_a_name_of_another_form_is_refused(name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["new", "cache", "--folder", str(tmp_path / "x"), "--", name]) == 1
    assert "is no name for a plugin" in capsys.readouterr().err
    assert not (tmp_path / "x").exists()


def test_nothing_is_written_over(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "kept").write_text("mine")
    assert main(["new", "connector", "shelf", "--folder", str(tmp_path)]) == 1
    assert "is not empty" in capsys.readouterr().err
    assert [path.name for path in tmp_path.iterdir()] == ["kept"]


@pytest.mark.parametrize("path", sorted(TEMPLATES.rglob("*.py")), ids=lambda path: path.relative_to(TEMPLATES).as_posix())
def test_templates_use_no_other_door_than_plugins_have(path: Path) -> None:
    tree = ast.parse(path.read_text())
    modules = {node.module or "" for node in ast.walk(tree) if isinstance(node, ast.ImportFrom)}
    modules |= {alias.name for node in ast.walk(tree) if isinstance(node, ast.Import) for alias in node.names}
    ours = {module for module in modules if module.partition(".")[0] == "inset"}
    assert {module for module in ours if module not in ("inset", "inset.api") and not module.startswith("inset.testing.")} == set()


@pytest.mark.parametrize("name", ["inset", "http", "https", "data", "file", "lru", "shm", "processor-only"])
def test_a_name_of_the_cores_own_is_refused(name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["new", "connector", name, "--folder", str(tmp_path / "x")]) == 1
    assert "a name of the core's own" in capsys.readouterr().err
    assert not (tmp_path / "x").exists()
