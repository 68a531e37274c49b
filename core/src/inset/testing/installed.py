"""An installed plugin as an operator meets it."""

from __future__ import annotations

import contextlib
import io

from inset.cli import main

__all__ = ["assert_plugin_loads"]


def assert_plugin_loads(name: str) -> None:
    """Asserts that an installed plugin is loaded by itself, and that everything which it registers loads and is of the right kind.

    Args:
        name: Name of the plugin, or of its distribution.

    Raises:
        AssertionError: What ``inset plugins check NAME`` prints.
    """
    printed = io.StringIO()
    with contextlib.redirect_stdout(printed), contextlib.redirect_stderr(printed):
        status = main(["plugins", "check", name, "--plugin", name])
    assert status == 0, printed.getvalue()
