"""Environments of their own, with our wheels as people install them."""

from __future__ import annotations

import os
import subprocess
import sys
import venv
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
LIMIT_SECONDS = 240


class Environment:
    """A new virtual environment that inherits third-party packages alone."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.bin = folder / "bin"

    def run(self, *words: str | Path, cwd: Path | None = None, environ: Mapping[str, str] | None = None, status: int | None = 0) -> str:
        """Runs a command, whose first word may be a program of this environment, and returns what it printed."""
        program = self.bin / words[0]
        clean = {name: value for name, value in os.environ.items() if not name.startswith(("INSET_", "PYTHON", "PIP_"))}
        ended = subprocess.run(
            [str(word) for word in (program if program.exists() else words[0], *words[1:])],
            cwd=cwd or self.folder,
            env={**clean, **(environ or {})},
            capture_output=True,
            text=True,
            timeout=LIMIT_SECONDS,
            check=False,
        )
        assert status is None or ended.returncode == status, ended.stdout + ended.stderr
        return ended.stdout

    def pip(self, *words: str | Path) -> None:
        """Runs pip on this environment."""
        self.run(sys.executable, "-m", "pip", "--disable-pip-version-check", "--python", self.bin / "python", *words)


def third_party() -> Iterator[Path]:
    """Everything installed here that is not ours."""
    for folder in dict.fromkeys(Path(entry) for entry in sys.path if entry.endswith("site-packages")):
        yield from (item for item in folder.iterdir() if not item.name.startswith(("inset", "_editable_impl_inset", "__")))


@pytest.fixture(scope="session")
def build_wheel(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Path]:
    """Builds the wheel of one of our packages, such as ``plugins/llava``, once."""
    built: dict[str, Path] = {}

    def build(package: str) -> Path:
        if package not in built:
            folder = tmp_path_factory.mktemp("wheel")
            command = [sys.executable, "-m", "hatchling", "build", "--target", "wheel", "--directory", str(folder)]
            subprocess.run(command, cwd=ROOT / package, check=True, timeout=LIMIT_SECONDS, capture_output=True)
            (built[package],) = folder.glob("*.whl")
        return built[package]

    return build


@pytest.fixture(scope="session")
def make_environment(tmp_path_factory: pytest.TempPathFactory, build_wheel: Callable[[str], Path]) -> Callable[..., Environment]:
    """Makes an environment with the wheels of these packages."""

    def make(*packages: str) -> Environment:
        folder = tmp_path_factory.mktemp("environment")
        venv.create(folder / "venv", with_pip=False, symlinks=True)
        inherited = folder / "third-party"
        inherited.mkdir()
        for item in third_party():
            if item.suffix != ".pth" and not (inherited / item.name).exists():
                (inherited / item.name).symlink_to(item)
        (site_packages,) = (folder / "venv").glob("lib/python*/site-packages")
        (site_packages / "third_party.pth").write_text(f"{inherited}\n")
        environment = Environment(folder / "venv")
        environment.pip("install", "--no-deps", "--no-index", *map(build_wheel, packages))
        return environment

    return make
