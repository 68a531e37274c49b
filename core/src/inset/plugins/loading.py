"""Takes every installed plugin through the checks; one that fails is set aside, and the others work."""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

import pluggy

from inset.config import PluginConfig
from inset.errors import ConfigError, DuplicateNameError, PluginError, UnknownNameError
from inset.plugins.checks import check_requirement, collect_registrations, import_plugin, make_manager
from inset.plugins.discovery import BUILTIN, Candidate
from inset.plugins.registries import Registries
from inset.plugins.report import PluginState
from inset.registry import describe_clash, normalize_name

__all__ = ["PluginRecord", "Selection", "load_plugins", "select"]


@dataclass(slots=True)
class PluginRecord:
    """One candidate on its way: what it became, and why.

    Attributes:
        candidate: The entry point.
        state: Loaded until something speaks against it.
        error: Why it is set aside.
        manager: Its hook manager, once it is imported and valid.
        staged: What it registers, once its hooks have run.
        import_seconds: How long its import took.
    """

    candidate: Candidate
    state: PluginState = PluginState.LOADED
    error: PluginError | None = None
    manager: pluggy.PluginManager | None = None
    staged: Registries = field(default_factory=Registries)
    import_seconds: float = 0.0

    @property
    def is_loaded(self) -> bool:
        """Nothing speaks against it so far."""
        return self.state is PluginState.LOADED

    def set_aside(self, error: PluginError) -> None:
        """Keeps its first fault; nothing that it registers counts."""
        self.state = PluginState.SET_ASIDE
        self.error = self.error or error


@dataclass(frozen=True, slots=True)
class Selection:
    """Which names the operator wants; all in normal form.

    Attributes:
        named: Plugins that must load; None where all installed ones may.
        refused: Plugins that must not.
    """

    named: frozenset[str] | None
    refused: frozenset[str]

    def wants(self, name: str) -> bool:
        """The operator has not left it out; the core's own is never left out."""
        return name == BUILTIN or (name not in self.refused and (self.named is None or name in self.named))

    def insists_on(self, candidate: Candidate) -> bool:
        """Start-up fails without it."""
        return candidate.is_builtin or (self.named is not None and candidate.name in self.named)

    def check(self, installed: Iterable[str]) -> None:
        """Accepts names that are installed, each on one side only.

        Raises:
            ConfigError: A plugin is both named and left out, or the core's own is left out.
            UnknownNameError: A name is not installed; those that are stand in the message.
        """
        named = self.named or frozenset()
        for name in sorted(self.refused & (named | {BUILTIN})):
            why = "it is the core's own" if name == BUILTIN else "it is named as well (--plugin or INSET_PLUGINS)"
            raise ConfigError(f"The plugin {name!r} cannot be left out with --no-plugin or INSET_NO_PLUGINS: {why}.")
        there = sorted(set(installed))
        for name in sorted((named | self.refused) - set(there)):
            raise UnknownNameError(
                f"There is no plugin {name!r}. Installed: {', '.join(there)}. "
                f"Install the distribution that brings it (often `pip install inset-{name}`), or correct the name."
            )


def select(config: PluginConfig) -> Selection:
    """Returns the selection that the options describe."""
    named = None if config.plugins is None else frozenset(normalize_name(name) for name in config.plugins)
    return Selection(named, frozenset(normalize_name(name) for name in config.no_plugins))


def load_plugins(candidates: Sequence[Candidate], selection: Selection, *, trace: bool) -> tuple[PluginRecord, ...]:
    """Returns what became of each candidate; no failure of a plugin gets out of here."""
    records = tuple(PluginRecord(candidate) for candidate in candidates)
    for record in records:
        if not selection.wants(record.candidate.name):
            record.state = PluginState.LEFT_OUT
    _settle_entry_names(records)
    for record in records:
        if record.is_loaded:
            try:
                _load(record, trace=trace)
            except PluginError as error:
                record.set_aside(error)
    _settle_claims(records)
    return records


def _load(record: PluginRecord, *, trace: bool) -> None:
    check_requirement(record.candidate)
    started = time.perf_counter()
    try:
        module = import_plugin(record.candidate)
    finally:
        record.import_seconds = time.perf_counter() - started
    record.manager = make_manager(record.candidate, module, trace=trace)
    record.staged = collect_registrations(record.candidate, record.manager)


def _settle_entry_names(records: Sequence[PluginRecord]) -> None:
    """Sets aside, before any import, all plugins of one name, except that the core's own keeps its name."""
    by_name: dict[str, list[PluginRecord]] = defaultdict(list)
    for record in records:
        if record.is_loaded:
            by_name[record.candidate.name].append(record)
    for name, claimants in by_name.items():
        _set_claimants_aside("plugin name", name, claimants, stage="discover")


def _settle_claims(records: Sequence[PluginRecord]) -> None:
    """Sets aside every plugin that claims a name of another, whatever their order; the core's own keeps its names.

    The core's names are settled first, so that a plugin which loses to the core takes no third one down with it.
    """
    core = [record for record in records if record.is_loaded and record.candidate.is_builtin]
    for plugin in [record for record in records if record.is_loaded and not record.candidate.is_builtin]:
        _settle_claims_among([*core, plugin])
    _settle_claims_among([record for record in records if record.is_loaded])


def _settle_claims_among(records: Sequence[PluginRecord]) -> None:
    claims: dict[tuple[str, str], list[PluginRecord]] = defaultdict(list)
    for record in records:
        for _, registry in record.staged:
            for name in registry.view():
                claims[registry.kind, name].append(record)
    for (kind, name), claimants in claims.items():
        _set_claimants_aside(kind, name, claimants, stage="names")


def _set_claimants_aside(kind: str, name: str, claimants: Sequence[PluginRecord], *, stage: str) -> None:
    """Neither wins: which of two comes first in an alphabet, or was installed last, is nobody's decision."""
    for record in claimants:
        others = [other for other in claimants if other is not record]
        if others and not record.candidate.is_builtin:
            other = next((o for o in others if o.candidate.is_builtin), others[0])
            clash = describe_clash(kind, name, other.candidate.owner, record.candidate.owner)
            record.set_aside(DuplicateNameError(f"{clash} {_settle(other.candidate, record.candidate)}", stage=stage))


def _settle(first: Candidate, second: Candidate) -> str:
    if first.name == second.name:
        return f"Uninstall one of them, {first.distribution} or {second.distribution}."
    if first.is_builtin:
        return f"The core keeps its names; leave the other one out with --no-plugin {second.name}."
    return f"Neither is loaded. Leave one of them out: --no-plugin {first.name} or --no-plugin {second.name}."
