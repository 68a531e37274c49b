"""What became of each plugin, in words."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Final, NamedTuple

from inset.plugins.registries import Registries
from inset.registry import ConnectorRegistration, Registry, normalize_name

__all__ = ["PluginReport", "PluginState", "Provision", "ResolvedPlugin", "list_provisions"]

SLOW_IMPORT_SECONDS: Final = 0.25
"""From here on an import is worth a word: every command and every process pays it."""

_ENABLED_BY: Final = {"data": "always", "http": "always", "file": "by --allowed-local-media-path FOLDER"}


class PluginState(StrEnum):
    """What became of an installed plugin."""

    LOADED = "loaded"
    SET_ASIDE = "set aside"
    """It has a fault; the others work."""
    LEFT_OUT = "left out"
    """The operator did not want it."""


class Provision(NamedTuple):
    """One thing that a plugin provides: its kind, its name, and what an operator should know about it."""

    kind: str
    name: str
    detail: str = ""


class ResolvedPlugin(NamedTuple):
    """One loaded plugin, as processes compare them."""

    distribution: str
    version: str
    entry: str

    def __str__(self) -> str:
        return f"{self.distribution} {self.version} ({self.entry})"


@dataclass(frozen=True, slots=True)
class PluginReport:
    """One line of ``inset plugins list``.

    Attributes:
        name: The plugin's name in normal form.
        distribution: The installed distribution that it comes from.
        version: That distribution's version.
        state: Loaded, set aside or left out.
        stage: Where it failed: ``discover``, ``require``, ``import``, ``validate``, ``register`` or ``names``; None if it did not.
        error: What went wrong, or nothing.
        hint: What to do about it, or a remark about a plugin that works.
        provides: What it registers.
        import_seconds: How long the import of its module took; 0 if it was not imported.
    """

    name: str
    distribution: str
    version: str
    state: PluginState
    stage: str | None = None
    error: str = ""
    hint: str = ""
    provides: tuple[Provision, ...] = ()
    import_seconds: float = 0.0


def list_provisions(registries: Registries, *, has_media_io: bool) -> tuple[Provision, ...]:
    """Returns what one plugin's staged registries hold, sorted by kind and name."""
    provided = [_describe(registry, name) for _, registry in registries for name in registry.names()]
    if has_media_io:
        provided.append(Provision("media IO", "get_media_io", "asked for the decoder of each modality"))
    return tuple(sorted(provided))


def _describe(registry: Registry[Any], name: str) -> Provision:
    registration = registry.get(name)
    if not isinstance(registration, ConnectorRegistration):
        return Provision(registry.kind, name)
    detail = f"{', '.join(registration.schemes)}; enabled {_ENABLED_BY.get(normalize_name(name), f'by --media-connector {name}')}"
    if registration.dials_itself:
        detail += "; dials by itself, so the core's address and redirect rules do not hold"
    return Provision(registry.kind, name, detail)
