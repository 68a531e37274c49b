"""A folder of installed plugins: real packages with real metadata, for tests of how plugins are found and loaded."""

from __future__ import annotations

import importlib
import sys
import textwrap
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import importlib_metadata

__all__ = ["HOOKIMPL", "PluginSite", "open_plugin_site"]

HOOKIMPL: Final = "from inset import hookimpl\n"


@dataclass(frozen=True, slots=True)
class PluginSite:
    """A folder that can stand on ``sys.path``.

    Attributes:
        folder: Where packages and their dist-info folders lie.
    """

    folder: Path

    def install(
        self,
        name: str,
        *,
        code: str = "",
        distribution: str | None = None,
        version: str = "1.0",
        requires: Sequence[str] = ("inset>=0.1,<0.2",),
        module: str | None = None,
    ) -> None:
        """Installs a distribution with one plugin.

        Args:
            name: The entry point's name.
            code: What stands in the plugin's module, below the import of ``hookimpl``.
            distribution: The distribution's name; the plugin's when None.
            version: The distribution's version.
            requires: Its ``Requires-Dist`` lines.
            module: The package's name; made from the distribution's name when None.
        """
        distribution = distribution or name
        package = module or distribution.replace("-", "_").lower()
        (self.folder / package).mkdir(parents=True, exist_ok=True)
        (self.folder / package / "__init__.py").touch()
        (self.folder / package / "plugin.py").write_text(HOOKIMPL + textwrap.dedent(code), "utf-8")
        info = self.folder / f"{distribution.replace('-', '_')}-{version}.dist-info"
        info.mkdir()
        lines = ["Metadata-Version: 2.4", f"Name: {distribution}", f"Version: {version}", *(f"Requires-Dist: {line}" for line in requires)]
        (info / "METADATA").write_text("\n".join([*lines, "", "A plugin for tests."]), "utf-8")
        (info / "entry_points.txt").write_text(f"[inset]\n{name} = {package}.plugin\n", "utf-8")
        importlib.invalidate_caches()

    def distributions(self) -> tuple[importlib_metadata.Distribution, ...]:
        """Returns what is installed in this folder and nowhere else."""
        return tuple(importlib_metadata.Distribution.discover(path=[str(self.folder)]))


@contextmanager
def open_plugin_site(folder: Path) -> Iterator[PluginSite]:
    """Puts an empty folder at the front of ``sys.path``; on leaving, takes it away and forgets what was imported from it."""
    sys.path.insert(0, str(folder))
    importlib.invalidate_caches()
    try:
        yield PluginSite(folder)
    finally:
        sys.path.remove(str(folder))
        for name, module in list(sys.modules.items()):
            if str(getattr(module, "__file__", None) or "").startswith(str(folder)):
                del sys.modules[name]
