"""What an import costs: measured in a fresh interpreter, because every process and every listing pays it."""

from __future__ import annotations

import json
import subprocess
import sys
from typing import Final, NamedTuple

__all__ = ["HEAVY", "ImportCost", "assert_light_import", "measure_import"]

HEAVY: Final = frozenset({"aiohttp", "av", "numpy", "PIL", "pydantic", "scipy", "soundfile", "soxr", "tokenizers", "torch", "transformers"})
"""Packages that a plugin module must not bring: listing plugins imports each of them."""

_TIMEOUT_SECONDS: Final = 120.0
_CODE: Final = """
import importlib, json, sys, time
import inset
before, start = set(sys.modules), time.perf_counter()
importlib.import_module(sys.argv[1])
seconds = time.perf_counter() - start
print(json.dumps([seconds, sorted(set(sys.modules) - before)]), file=sys.stderr)
"""


class ImportCost(NamedTuple):
    """What one import brought, beside `inset` itself.

    Attributes:
        seconds: How long it took, in seconds; print it, but never assert it: machines differ.
        modules: Every module that it loaded.
    """

    seconds: float
    modules: frozenset[str]

    @property
    def packages(self) -> frozenset[str]:
        """The top-level names of the modules."""
        return frozenset(name.partition(".")[0] for name in self.modules)


def measure_import(module: str) -> ImportCost:
    """Imports a module in a fresh interpreter and returns what it cost.

    Raises:
        AssertionError: It cannot be imported; the interpreter's own words stand in the message.
    """
    command = [sys.executable, "-c", _CODE, module]
    ended = subprocess.run(command, capture_output=True, text=True, timeout=_TIMEOUT_SECONDS, check=False)
    assert ended.returncode == 0, f"{module} cannot be imported:\n{ended.stderr}"
    seconds, modules = json.loads(ended.stderr.splitlines()[-1])
    return ImportCost(seconds, frozenset(modules))


def assert_light_import(module: str, *, forbidden: frozenset[str] = HEAVY) -> ImportCost:
    """Asserts that an import brings none of the heavy packages, and returns what it cost.

    Args:
        module: Such as ``inset_llava.plugin``.
        forbidden: Top-level names that must not be loaded.
    """
    cost = measure_import(module)
    brought = sorted(cost.packages & forbidden)
    assert not brought, f"importing {module} brings {', '.join(brought)}; import them where they are used"
    return cost
