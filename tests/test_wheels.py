"""The wheels that people install: built, put into an environment of their own, listed, and removed again."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any


def listed(environment: Any) -> dict[str, tuple[str, str]]:
    listing = json.loads(environment.run("inset", "plugins", "list", "--json"))
    return {plugin["name"]: (plugin["distribution"], plugin["state"]) for plugin in listing["plugins"]}


def test_two_wheels_in_a_new_environment_list_exactly_these_two_and_leave_with_pip(make_environment: Callable[..., Any]) -> None:
    environment = make_environment("core", "plugins/llava")
    assert listed(environment) == {"inset": ("inset", "loaded"), "llava": ("inset-llava", "loaded")}
    located = environment.run("python", "-c", "import inset; print(inset.__file__)")
    assert located.startswith(str(environment.folder)), "the wheel is used, not the checkout"
    environment.pip("uninstall", "--yes", "inset-llava")
    assert listed(environment) == {"inset": ("inset", "loaded")}
