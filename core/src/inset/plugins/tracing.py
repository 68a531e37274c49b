"""INSET_TRACE_HOOKS=1: every hook call, its implementations and its results, on standard error."""

from __future__ import annotations

import reprlib
import sys
from collections.abc import Mapping, Sequence
from typing import Any, Final

import pluggy

__all__ = ["trace_hooks"]

_SHORTLY: Final = reprlib.Repr()  # a checkpoint's repr would fill pages, and a plugin's object may have one that raises
_SHORTLY.maxother = _SHORTLY.maxstring = 200


def trace_hooks(manager: pluggy.PluginManager) -> None:
    """Makes a manager print each hook call that has an implementation: the call, who implements it, what it gave or raised."""
    manager.add_hookcall_monitoring(_before, _after)


def _before(hook_name: str, methods: Sequence[pluggy.HookImpl], arguments: Mapping[str, Any]) -> None:
    if not methods:
        return
    _print(f"{hook_name}({', '.join(f'{name}={_SHORTLY.repr(value)}' for name, value in arguments.items())})")
    for method in methods:
        _print(f"  implemented by {method.plugin_name} in {method.function.__module__}")


def _after(outcome: pluggy.Result[Any], hook_name: str, methods: Sequence[pluggy.HookImpl], arguments: Mapping[str, Any]) -> None:
    if not methods:
        return
    if outcome.exception is not None:
        _print(f"  {hook_name} raised {_SHORTLY.repr(outcome.exception)}")
    elif "registry" in arguments:
        _print(f"  {hook_name} filled {_SHORTLY.repr(arguments['registry'])}")
    else:
        _print(f"  {hook_name} returned {_SHORTLY.repr(outcome.get_result())}")


def _print(line: str) -> None:
    sys.stderr.write(f"inset hook: {line}\n")
