"""The plugin host: what is installed becomes registries, a report and a fingerprint."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from functools import cache

import importlib_metadata

from inset.checkpoint import Checkpoint
from inset.config import PluginConfig
from inset.errors import ConfigError, InsetError, PluginContractError, PluginError, UnknownNameError
from inset.identity import canonical_json, framed_sha256
from inset.inputs import MediaIOFactory
from inset.options import read_environment
from inset.plugins.advice import make_report
from inset.plugins.checks import isolated
from inset.plugins.discovery import discover
from inset.plugins.loading import PluginRecord, load_plugins, select
from inset.plugins.registries import Registries
from inset.plugins.report import PluginReport, PluginState, ResolvedPlugin

__all__ = ["PluginHost", "get_default_host"]


class PluginHost:
    """The plugins of one core; nothing is shared with another one.

    Attributes:
        registries: What the loaded plugins have registered. Whoever builds the core reads them; only plugins write.
        resolved: The loaded plugins, sorted, as other processes of the same deployment must have them.
        failure: Why this host cannot serve. Raised by the constructor unless the host is `tolerant`.
    """

    def __init__(
        self,
        config: PluginConfig | None = None,
        *,
        distributions: Iterable[importlib_metadata.Distribution] | None = None,
        tolerant: bool = False,
    ) -> None:
        """Finds, checks and loads the plugins that the options ask for.

        Args:
            config: Which plugins load; read from the environment when None.
            distributions: Where to look for plugins instead of everything installed; empty gives the core alone.
            tolerant: Keep what is wrong in `failure` instead of raising it, for commands that explain it.

        Raises:
            UnknownNameError: A plugin is named that is not installed.
            PluginError: A plugin that is named, or any with ``strict_plugins``, cannot be loaded.
            ConfigError: The options contradict each other.
        """
        options = PluginConfig(**read_environment(PluginConfig)) if config is None else config
        selection = select(options)
        candidates = discover(distributions)
        self._records = load_plugins(candidates, selection, trace=options.trace_hooks)
        self.registries = Registries()
        for record in self._loaded():
            self.registries.merge(record.staged)
        self.resolved = tuple(sorted(_resolve(record) for record in self._loaded()))
        self.failure: InsetError | None = None
        try:
            selection.check(candidate.name for candidate in candidates)
            _check_needed([r for r in self._records if options.strict_plugins or selection.insists_on(r.candidate)])
        except InsetError as error:
            if not tolerant:
                raise
            self.failure = error

    def _loaded(self) -> Iterator[PluginRecord]:
        return (record for record in self._records if record.is_loaded)

    def get_media_io(self, modality: str, info: Checkpoint, *, owner: str | None = None) -> MediaIOFactory:
        """Returns the factory of MediaIOs for a checkpoint's modality: the first answer of the hook ``get_media_io``.

        Args:
            modality: ``image``, ``video`` or ``audio``, or what a plugin adds.
            info: The checkpoint's configs.
            owner: The plugin to ask first; the one that registered the checkpoint's processor when None. Then come the others in the
                order of their names, and the core's own last.

        Raises:
            PluginContractError: A plugin raises, or answers with something that cannot be called.
            UnknownNameError: No plugin answers.
        """
        first = self._processor_owner(info) if owner is None else owner
        asked = sorted(self._loaded(), key=lambda record: (record.candidate.is_builtin, record.candidate.name != first))
        for record in asked:
            factory = _ask_for_media_io(record, modality, info)
            if factory is not None:
                return factory
        raise UnknownNameError(
            f"No plugin reads the modality {modality!r} for model_type {info.model_type!r}; asked: "
            f"{', '.join(record.candidate.name for record in asked)}."
        )

    def ask_for_media_io(self, plugin: str, modality: str, info: Checkpoint) -> MediaIOFactory | None:
        """Returns what one loaded plugin answers to the hook ``get_media_io``, or None where it leaves the choice to others.

        Raises:
            PluginContractError: It raises, or answers with something that cannot be called.
        """
        record = next(record for record in self._loaded() if record.candidate.name == plugin)
        return _ask_for_media_io(record, modality, info)

    def _processor_owner(self, info: Checkpoint) -> str | None:
        processors = self.registries.processors
        owner = processors.owner_of(info.model_type) if info.model_type in processors else None
        return None if owner is None else owner.plugin

    def report(self) -> tuple[PluginReport, ...]:
        """Returns what became of every installed plugin, the core's own first, then by name."""
        return tuple(make_report(record) for record in self._records)

    def fingerprint(self) -> str:
        """Returns the sha256 of `resolved` in hexadecimal digits; equal in processes that loaded the same plugins."""
        return framed_sha256(b"inset-plugins", canonical_json([list(plugin) for plugin in self.resolved])).hex()

    def check_fingerprint(self, other: Iterable[Sequence[str]]) -> None:
        """Accepts another process that loaded the same plugins.

        Args:
            other: Its `resolved`: (distribution, version, entry) of each plugin, in any order; lists will do, as messages carry them.

        Raises:
            ConfigError: The sets differ; both stand in the message.
        """
        theirs = tuple(sorted(ResolvedPlugin(*plugin) for plugin in other))
        if theirs != self.resolved:
            raise ConfigError(
                f"Two processes of one deployment have loaded different plugins.\n  here:  {_enumerate(self.resolved)}\n"
                f"  there: {_enumerate(theirs)}\nInstall the same versions on both sides, and give both the same plugin options."
            )


def _enumerate(plugins: Iterable[ResolvedPlugin]) -> str:
    return ", ".join(str(plugin) for plugin in plugins) or "none"


def _resolve(record: PluginRecord) -> ResolvedPlugin:
    candidate = record.candidate
    return ResolvedPlugin(candidate.distribution, candidate.version, f"{candidate.name} = {candidate.target}")


def _ask_for_media_io(record: PluginRecord, modality: str, info: Checkpoint) -> MediaIOFactory | None:
    assert record.manager is not None
    with isolated(record.candidate, "get_media_io", PluginContractError):
        factory: MediaIOFactory | None = record.manager.hook.get_media_io(modality=modality, info=info)
        if factory is not None and not callable(factory):
            raise PluginContractError(
                f"get_media_io of the plugin {record.candidate.name!r} must return a factory or None, not {type(factory).__name__}."
            )
    return factory


def _check_needed(records: Iterable[PluginRecord]) -> None:
    """Raises the first fault of the plugins that must load, with the faults of all of them."""
    failed = [record for record in records if record.state is PluginState.SET_ASIDE]
    if not failed:
        return
    lines = [
        f"The plugin {r.name!r} of {r.distribution} {r.version} cannot be loaded ({r.stage}): {r.error} {r.hint}"
        for r in map(make_report, failed)
    ]
    first = failed[0].error
    assert isinstance(first, PluginError)
    raise type(first)("\n".join(lines), stage=first.stage) from first


@cache
def get_default_host() -> PluginHost:
    """Returns the host of the default core, which serves whoever builds no core, such as ``inset.fetch_image``.

    It is made when it is first asked for, from the environment.

    Raises:
        UnknownNameError: ``INSET_PLUGINS`` names a plugin that is not installed.
        PluginError: A plugin that the environment asks for cannot be loaded.
    """
    return PluginHost()
