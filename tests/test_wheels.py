"""The wheels that people install: built, put into an environment of their own, listed, and removed again."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import venv
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
LIMIT_SECONDS = 120


def run(*words: str | Path, cwd: Path = ROOT) -> str:
    environ = {name: value for name, value in os.environ.items() if not name.startswith(("INSET_", "PYTHON", "PIP_"))}
    ended = subprocess.run(
        [str(word) for word in words], cwd=cwd, env=environ, capture_output=True, text=True, timeout=LIMIT_SECONDS, check=False
    )
    assert ended.returncode == 0, ended.stdout + ended.stderr
    return ended.stdout


def third_party() -> Iterator[Path]:
    """Everything installed here that is not ours."""
    for folder in dict.fromkeys(Path(entry) for entry in sys.path if entry.endswith("site-packages")):
        yield from (item for item in folder.iterdir() if not item.name.startswith(("inset", "_editable_impl_inset", "__")))


@pytest.fixture(scope="module")
def environment(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A new virtual environment that inherits third-party packages, with the wheels of inset and inset-llava installed."""
    folder = tmp_path_factory.mktemp("wheels")
    for package in ("core", "plugins/llava"):
        run(sys.executable, "-m", "hatchling", "build", "--target", "wheel", "--directory", folder / "dist", cwd=ROOT / package)
    venv.create(folder / "venv", with_pip=False, symlinks=True)
    inherited = folder / "third-party"
    inherited.mkdir()
    for item in third_party():
        if item.suffix != ".pth" and not (inherited / item.name).exists():
            (inherited / item.name).symlink_to(item)
    (site_packages,) = (folder / "venv").glob("lib/python*/site-packages")
    (site_packages / "third_party.pth").write_text(f"{inherited}\n")
    wheels = sorted((folder / "dist").glob("*.whl"))
    assert [wheel.name.partition("-")[0] for wheel in wheels] == ["inset", "inset_llava"]
    run(*pip(folder / "venv"), "install", "--no-deps", "--no-index", *wheels)
    return folder / "venv"


def pip(environment: Path) -> tuple[str | Path, ...]:
    return (sys.executable, "-m", "pip", "--disable-pip-version-check", "--python", environment / "bin" / "python")


def listed(environment: Path) -> dict[str, tuple[str, str]]:
    listing = json.loads(run(environment / "bin" / "inset", "plugins", "list", "--json", cwd=environment))
    return {plugin["name"]: (plugin["distribution"], plugin["state"]) for plugin in listing["plugins"]}


def test_two_wheels_in_a_new_environment_list_exactly_these_two_and_leave_with_pip(environment: Path) -> None:
    assert listed(environment) == {"inset": ("inset", "loaded"), "llava": ("inset-llava", "loaded")}
    located = run(environment / "bin" / "python", "-c", "import inset; print(inset.__file__)", cwd=environment)
    assert located.startswith(str(environment)), "the wheel is used, not the checkout"
    run(*pip(environment), "uninstall", "--yes", "inset-llava")
    assert listed(environment) == {"inset": ("inset", "loaded")}
