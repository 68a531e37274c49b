"""INSET_TRACE_HOOKS=1: every hook call, its implementations and its results, on standard error."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from typing import Any

import pluggy

__all__ = ["trace_hooks"]


def trace_hooks(manager: pluggy.PluginManager) -> None:
    """Makes a manager print each hook call that has an implementation: the call, who implements it, what it gave or raised."""
    manager.add_hookcall_monitoring(_before, _after)


def _before(hook_name: str, methods: Sequence[pluggy.HookImpl], arguments: Mapping[str, Any]) -> None:
    if not methods:
        return
    _print(f"{hook_name}({', '.join(f'{name}={value!r}' for name, value in arguments.items())})")
    for method in methods:
        _print(f"  implemented by {method.plugin_name} in {method.function.__module__}")


def _after(outcome: pluggy.Result[Any], hook_name: str, methods: Sequence[pluggy.HookImpl], arguments: Mapping[str, Any]) -> None:
    if not methods:
        return
    if outcome.exception is not None:
        _print(f"  {hook_name} raised {outcome.exception!r}")
    elif "registry" in arguments:
        _print(f"  {hook_name} filled {arguments['registry']!r}")
    else:
        _print(f"  {hook_name} returned {outcome.get_result()!r}")


def _print(line: str) -> None:
    sys.stderr.write(f"inset hook: {line}\n")
