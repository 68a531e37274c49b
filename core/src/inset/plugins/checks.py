"""The checks that a plugin passes one after the other; each raises a `PluginError` with the stage, and never anything else."""

from __future__ import annotations

import importlib
import re
import traceback
from collections.abc import Iterator
from contextlib import contextmanager
from types import ModuleType
from typing import Final

import pluggy
from packaging.requirements import Requirement

import inset
from inset import hookspecs
from inset.errors import PluginContractError, PluginError, PluginLoadError
from inset.plugins.discovery import Candidate
from inset.plugins.registries import Registries
from inset.plugins.tracing import trace_hooks

__all__ = ["HOOKS", "check_requirement", "collect_registrations", "import_plugin", "isolated", "make_manager"]

HOOKS: Final = (*(hook for hook, _ in Registries()), "get_media_io")
"""The names of all hooks."""

_INSET_REQUIREMENT: Final = re.compile(r"\s*inset\s*(?:[\[(<>=!~;@].*)?", re.IGNORECASE | re.DOTALL)


def check_requirement(candidate: Candidate) -> None:
    """Accepts a plugin whose distribution says that it works with the running version of Inset; nothing is imported.

    Raises:
        PluginLoadError: It is made for another version, or does not say for which.
    """
    if candidate.problem:
        raise PluginLoadError(
            f"The metadata of {candidate.distribution} cannot be read; reinstall it. {candidate.problem}", stage="discover"
        )
    if candidate.is_builtin:
        return
    whose = f"{candidate.distribution} {candidate.version}"
    with isolated(candidate, "require", PluginLoadError):
        found = [requirement for line in candidate.requires if (requirement := _inset_requirement(line)) is not None]
        if not found:
            raise PluginLoadError(f"{whose} does not say which versions of inset it works with (Requires-Dist: inset).")
        for requirement in found:
            if not requirement.specifier.contains(inset.__version__, prereleases=True):
                raise PluginLoadError(f"{whose} needs inset{requirement.specifier}, and this is inset {inset.__version__}.")


def _inset_requirement(line: str) -> Requirement | None:
    """Returns the requirement if it is one on Inset that holds in this environment; other lines are not parsed at all."""
    if not _INSET_REQUIREMENT.fullmatch(line):
        return None
    requirement = Requirement(line)
    applies = requirement.marker is None or requirement.marker.evaluate({"extra": ""})
    return requirement if applies else None


@contextmanager
def isolated(candidate: Candidate, stage: str, error_class: type[PluginError]) -> Iterator[None]:
    """Turns whatever a plugin's code raises, `SystemExit` included, into one `PluginError`; `KeyboardInterrupt` passes."""
    try:
        yield
    except KeyboardInterrupt:
        raise
    except PluginError as error:
        error.locate(stage=stage)
        raise
    except BaseException as error:
        text = traceback.TracebackException(type(error), error, None)  # survives an exception that cannot be printed
        raise error_class(f"{type(error).__name__}: {text}{_place(candidate, error)}", stage=stage) from error


def _place(candidate: Candidate, error: BaseException) -> str:
    """Returns the last line of the plugin's own package on the way to the error; the core's frames tell its author nothing."""
    package = candidate.target.partition(":")[0].partition(".")[0]
    for frame, line in reversed(list(traceback.walk_tb(error.__traceback__))):
        module = str(frame.f_globals.get("__name__", ""))
        if module.partition(".")[0] == package:
            return f" ({module}, line {line})"
    return ""


def import_plugin(candidate: Candidate) -> ModuleType:
    """Imports the module with the hook implementations.

    Raises:
        PluginLoadError: It cannot be imported, or it ends the process.
        PluginContractError: The entry point names no module.
    """
    if not re.fullmatch(r"[A-Za-z_]\w*(\.[A-Za-z_]\w*)*", candidate.target):
        raise PluginContractError(
            f"The entry point must name a module, such as 'package.plugin', not {candidate.target!r}.", stage="import"
        )
    with isolated(candidate, "import", PluginLoadError):
        return importlib.import_module(candidate.target)


def make_manager(candidate: Candidate, module: ModuleType, *, trace: bool) -> pluggy.PluginManager:
    """Returns a hook manager with this one plugin, its implementations checked against the hooks' signatures.

    Each plugin has a manager of its own: pluggy keeps what it refuses, and stops a call at the first implementation that raises.

    Raises:
        PluginContractError: A hook is misspelt, lacks its marker, takes unknown arguments, or is a wrapper.
    """
    manager = pluggy.PluginManager(hookspecs.PROJECT)
    manager.add_hookspecs(hookspecs)
    with isolated(candidate, "validate", PluginContractError):
        try:
            manager.register(module, candidate.name)
        except pluggy.PluginValidationError as error:
            raise PluginContractError("; ".join(line.strip() for line in str(error).splitlines() if line.strip())) from error
        for name in HOOKS:
            if callable(getattr(module, name, None)) and manager.parse_hookimpl_opts(module, name) is None:
                raise PluginContractError(f"The function {name!r} lacks its marker @hookimpl, so that it would never be called.")
        for caller in manager.get_hookcallers(module) or ():
            if not caller.has_spec():
                raise PluginContractError(f"There is no hook {caller.name!r}{_suggest(caller.name)}.")
            if any(implementation.wrapper or implementation.hookwrapper for implementation in caller.get_hookimpls()):
                raise PluginContractError(f"{caller.name!r} is a wrapper; a plugin answers for itself alone.")
    if trace:
        trace_hooks(manager)
    return manager


def _suggest(name: str) -> str:
    import difflib  # imported here because only a misspelling pays for it

    close = difflib.get_close_matches(name, HOOKS, n=1)
    return f"; did you mean {close[0]!r}?" if close else f". The hooks are {', '.join(HOOKS)}"


def collect_registrations(candidate: Candidate, manager: pluggy.PluginManager) -> Registries:
    """Calls the collecting hooks of one plugin and returns what it registers, apart from everything else.

    Raises:
        PluginContractError: A hook raises, returns something, or registers something of a wrong type.
        DuplicateNameError: It registers one name twice.
    """
    staged = Registries()
    staged.mark(candidate.owner)
    for hook, registry in staged:
        with isolated(candidate, "register", PluginContractError):
            returned = getattr(manager.hook, hook)(registry=registry)
            if returned:
                _close(returned[0])
                raise PluginContractError(
                    f"{hook} must return nothing, not {type(returned[0]).__name__}; it fills the registry it is given."
                )
    staged.mark(None)
    return staged


def _close(value: object) -> None:
    close = getattr(value, "close", None)  # a coroutine that nobody awaits would warn when it is collected
    if callable(close):
        close()
