"""What is installed: one scan over the entry points of the group ``inset``, without importing any plugin."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final, cast

import importlib_metadata

import inset
from inset.registry import Owner, normalize_name

__all__ = ["BUILTIN", "GROUP", "Candidate", "discover"]

GROUP: Final = "inset"
BUILTIN: Final = "inset"
"""The plugin name and the distribution of the core's own hook implementations."""


@dataclass(frozen=True, slots=True)
class Candidate:
    """One entry point, as installed.

    Attributes:
        name: The plugin's name in normal form.
        distribution: The distribution that brings it, as its metadata spells it.
        version: That distribution's version.
        target: The module with the hook implementations.
        requires: The ``Requires-Dist`` lines of the distribution.
        problem: Why its metadata cannot be used, or nothing.
    """

    name: str
    distribution: str
    version: str
    target: str
    requires: tuple[str, ...] = ()
    problem: str = ""

    @property
    def owner(self) -> Owner:
        """The mark that this plugin's registrations carry."""
        return Owner(plugin=self.name, distribution=self.distribution, version=self.version)

    @property
    def is_builtin(self) -> bool:
        """It is the core's own."""
        return self.name == BUILTIN and normalize_name(self.distribution) == BUILTIN


def discover(distributions: Iterable[importlib_metadata.Distribution] | None = None) -> tuple[Candidate, ...]:
    """Returns every installed plugin: the core's own first, the others by name and distribution.

    Args:
        distributions: What to look through instead of everything on ``sys.path``. The core's own plugin is there in any case, so that an
            empty list gives a core without plugins.
    """
    found: list[Candidate] = []
    seen: set[str] = set()
    if distributions is None:
        distributions = cast("Iterable[importlib_metadata.Distribution]", importlib_metadata.distributions())
    for distribution in distributions:
        candidates = _read(distribution)
        # The first one on the path is the one that Python imports; a later copy is shadowed.
        found.extend(candidate for candidate in candidates if normalize_name(candidate.distribution) not in seen)
        seen.update(normalize_name(candidate.distribution) for candidate in candidates if not candidate.problem)
    if not any(candidate.is_builtin for candidate in found):
        found.append(Candidate(BUILTIN, BUILTIN, inset.__version__, "inset.builtin"))
    return tuple(sorted(found, key=lambda c: (not c.is_builtin, c.name, c.distribution, c.target)))


def _read(distribution: importlib_metadata.Distribution) -> tuple[Candidate, ...]:
    name, version = "unknown distribution", "unknown"
    try:
        # The text test spares parsing the metadata of the hundreds of distributions that have nothing to do with us.
        if f"[{GROUP}]" not in (distribution.read_text("entry_points.txt") or ""):
            return ()
        metadata = distribution.metadata
        name, version = str(metadata["Name"]), str(metadata["Version"])
        # `requires` parses the metadata a second time; it is asked only for the old egg-info, which keeps requirements in another file.
        requires = tuple(metadata.get_all("Requires-Dist") or distribution.requires or ())
        entries = distribution.entry_points.select(group=GROUP)
        return tuple(Candidate(normalize_name(entry.name), name, version, entry.value, requires) for entry in entries)
    except Exception as error:  # damaged files, and other packages' finders, may raise anything
        return (Candidate(normalize_name(name), name, version, "", problem=f"{type(error).__name__}: {error}"),)
