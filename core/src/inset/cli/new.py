"""`inset new`: a complete plugin package with its tests, made from the templates beside this module."""

from __future__ import annotations

import argparse
import re
from pathlib import Path
from typing import Final

from inset.config import PluginConfig
from inset.errors import ConfigError
from inset.plugins import PluginHost

__all__ = ["KINDS", "add_arguments", "render", "run"]

KINDS: Final = {
    "connector": "fetches the bytes behind a URL scheme",
    "model": "a model family: a processor and an adapter around a transformers module",
    "cache": "a type of processor cache",
}
"""Kind -> what such a plugin does."""

TEMPLATES: Final = Path(__file__).parent / "_template"
_NAME: Final = re.compile(r"[a-z][a-z0-9]*(-[a-z0-9]+)*")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Adds the kind, the name and the folder."""
    kinds = parser.add_subparsers(dest="kind", metavar="KIND", required=True)
    for kind, help_text in KINDS.items():
        adding = kinds.add_parser(kind, help=help_text, allow_abbrev=False)
        adding.add_argument(
            "name", metavar="NAME", help="name of the plugin: lower-case letters, digits and hyphens; the package is inset-NAME"
        )
        adding.add_argument("--folder", type=Path, help="where to write it; ./inset-NAME when left out")


def run(args: argparse.Namespace) -> int:
    """Writes the package and says what to do next."""
    folder = args.folder or Path(f"inset-{args.name}")
    render(args.kind, args.name, folder)
    print(f"Wrote {folder}. Next: see its README, then\n  cd {folder} && pip install --editable '.[test]' && pytest")
    return 0


def render(kind: str, name: str, folder: Path) -> None:
    """Writes a package into a folder.

    Args:
        kind: One of `KINDS`.
        name: Name of the plugin.
        folder: Must be empty, or not exist.

    Raises:
        ConfigError: The name has another form or is one of the core's own, or something lies in the folder.
    """
    if not _NAME.fullmatch(name):
        raise ConfigError(
            f"{name!r} is no name for a plugin: write lower-case letters, digits and hyphens, a letter first, such as 'my-store'."
        )
    if name in _names_of_the_core():
        raise ConfigError(f"{name!r} is a name of the core's own: a plugin that claims it is set aside. Choose another one.")
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise ConfigError(f"{folder.name!r} exists and is not empty; choose another --folder.")
    template = TEMPLATES / kind
    for source in sorted(template.rglob("*")):
        path = source.relative_to(template)
        if source.is_file() and not any(part.startswith((".", "__pycache__")) for part in path.parts):  # what tools leave behind
            target = folder / _fill_in(path.as_posix(), name)
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_text(_fill_in(source.read_text("utf-8"), name), "utf-8")


def _names_of_the_core() -> set[str]:
    """Returns what the core itself has registered, and the URL schemes that it serves."""
    registries = PluginHost(PluginConfig(plugins=()), distributions=()).registries
    schemes = {scheme for connector in registries.media_connectors.view().values() for scheme in connector.schemes}
    return {"inset", *schemes, *registries.media_connectors.view(), *registries.processor_caches.view()}


def _fill_in(text: str, name: str) -> str:
    """Puts a name in place of the template's own, ``acme``, in each of its spellings."""
    words = name.split("-")
    spellings = {"inset_acme": "inset_" + "_".join(words), "Acme": "".join(word.capitalize() for word in words), "acme": name}
    return re.sub("|".join(spellings), lambda found: spellings[found[0]], text)
