"""What to do about a plugin that is not loaded, or that is slow."""

from __future__ import annotations

from inset.plugins.loading import PluginRecord
from inset.plugins.report import SLOW_IMPORT_SECONDS, PluginReport, PluginState, Provision, list_provisions
from inset.registry import find_extra

__all__ = ["make_report"]


def make_report(record: PluginRecord) -> PluginReport:
    """Returns the report on one candidate."""
    return PluginReport(
        name=record.candidate.name,
        distribution=record.candidate.distribution,
        version=record.candidate.version,
        state=record.state,
        stage=None if record.error is None else record.error.stage,
        error="" if record.error is None else record.error.message,
        hint=_advise(record),
        provides=_provisions(record),
        import_seconds=record.import_seconds,
    )


def _provisions(record: PluginRecord) -> tuple[Provision, ...]:
    if record.manager is None:
        return ()
    return list_provisions(record.staged, has_media_io=bool(record.manager.hook.get_media_io.get_hookimpls()))


def _advise(record: PluginRecord) -> str:
    name, distribution = record.candidate.name, record.candidate.distribution
    if record.state is PluginState.LEFT_OUT:
        return "Left out by --plugin, --no-plugin, INSET_PLUGINS or INSET_NO_PLUGINS."
    if record.error is None:
        return _remark(record)
    match record.error.stage:
        case "require":
            return f"Install a version of {distribution} for this inset, or change one of the two: pip install --upgrade {distribution}."
        case "import":
            return _advise_import(record)
        case "discover" | "names":
            return ""  # the error says what settles it
        case _:
            return f"A mistake in {distribution}: tell its author. Leave it out with --no-plugin {name}."


def _advise_import(record: PluginRecord) -> str:
    candidate = record.candidate
    cause = None if record.error is None else record.error.__cause__
    if not isinstance(cause, ModuleNotFoundError) or cause.name is None:
        return f"`python -c 'import {candidate.target}'` shows the whole traceback. Leave it out with --no-plugin {candidate.name}."
    extra = find_extra(cause)
    if extra is not None:
        return f"pip install 'inset[{extra}]' brings the module {cause.name!r}."
    return f"Install what provides the module {cause.name!r}, or reinstall {candidate.distribution} with its dependencies."


def _remark(record: PluginRecord) -> str:
    remarks = []
    if record.import_seconds >= SLOW_IMPORT_SECONDS:
        remarks.append(f"Slow: its import took {record.import_seconds:.2f} s, which every command and process pays.")
    if not _provisions(record):
        remarks.append("It implements no hook, or registers nothing.")
    return " ".join(remarks)
