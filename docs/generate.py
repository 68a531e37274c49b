"""Writes the tables of the reference pages from the code: ``python docs/generate.py``; with ``--check`` it only says what differs."""

from __future__ import annotations

import argparse
import inspect
import re
import sys
import typing
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Final

from inset import errors
from inset.cli.options import add_options, iter_described
from inset.config import Configs
from inset.testing import conformance

REFERENCE: Final = Path(__file__).parent / "reference"
SUITES: Final = Path(conformance.__file__).parent

SUBJECTS: Final = {
    "plugins": "Plugins",
    "media": "Media",
    "model": "Model",
    "cache": "Processor cache",
    "engine": "Engine",
    "server": "Server",
}


def options() -> Iterator[str]:
    """Yields the lines of one table of options for each subject."""
    flags = read_flags()
    for subject, config in typing.get_type_hints(Configs).items():
        yield f"## {SUBJECTS[subject]}"
        yield ""
        yield "| option | default | meaning |"
        yield "|---|---|---|"
        for item, default in iter_described(config):
            yield f"| {', '.join(flags[item.name])} | {default} | {item.help} |"
        yield ""


def read_flags() -> dict[str, list[str]]:
    """Returns option name -> its flags, as the command line has them; without the ``--no-`` form that every switch has."""
    parser = argparse.ArgumentParser()
    add_options(parser)
    renamed = {"plugin": "plugins", "no_plugin": "no_plugins", "model_flag": "model"}
    return {
        renamed.get(action.dest, action.dest): [
            f"`{flag}`" for flag in action.option_strings if not (flag.startswith("--no-") and len(action.option_strings) > 1)
        ]
        for action in parser._actions  # noqa: SLF001  # argparse shows its flags nowhere else
        if action.option_strings
    }


def error_tree() -> Iterator[str]:
    """Yields the tree of the errors as the code draws it."""
    drawn = (inspect.getdoc(errors) or "").split("::\n\n")[1].split("\n\nA message")[0]
    yield "```text"
    yield from inspect.cleandoc(drawn).splitlines()
    yield "```"


def error_table() -> Iterator[str]:
    """Yields one row for each error that a request or a start can end with."""
    yield "| code | status | error | meaning |"
    yield "|---|---|---|---|"
    classes = [getattr(errors, name) for name in errors.__all__]
    for cls in sorted(classes, key=lambda cls: (cls.status, cls.default_code, cls.__name__)):
        meaning = (inspect.getdoc(cls) or "").split("\n\n")[0].replace("\n", " ")
        yield f"| `{cls.default_code}` | {cls.status} | `{cls.__name__}` | {meaning} |"


def cases(suite: str) -> Iterator[str]:
    """Yields one row for each case of a conformance suite; its name is its claim."""
    source = (SUITES / f"{suite}.py").read_text("utf-8")
    numbered = re.findall(r"    def test_(?:(\d\d)_)?(\w+)\(", source)
    has_numbers = all(number for number, _ in numbered)
    yield "| case | what it asks for |" if has_numbers else "| what it asks for |"
    yield "|---|---|" if has_numbers else "|---|"
    for number, claim in numbered:
        yield (f"| {number} " if has_numbers else "") + f"| {claim.replace('_', ' ')} |"


TABLES: Final[dict[str, Callable[[], Iterator[str]]]] = {
    "options": options,
    "error tree": error_tree,
    "error table": error_table,
    "processor cases": partial(cases, "processor"),
    "model cases": partial(cases, "model"),
    "decoder cases": partial(cases, "media_io"),
}


def render(page: str) -> str:
    """Returns a page with the tables between its marks written anew."""

    def replace(match: re.Match[str]) -> str:
        lines = "\n".join(TABLES[match[2]]()).strip()
        return f"{match[1]}\n{lines}\n{match[3]}"

    return re.sub(r"(<!-- generated: ([a-z ]+) -->)\n.*?(<!-- end -->)", replace, page, flags=re.DOTALL)


def main(arguments: list[str]) -> int:
    """Writes the pages, or says which of them differ from the code."""
    status = 0
    for path in sorted(REFERENCE.glob("*.md")):
        page = path.read_text("utf-8")
        if page == render(page):
            continue
        if "--check" in arguments:
            print(f"{path.name} differs from the code: run python docs/generate.py")
            status = 1
        else:
            path.write_text(render(page), "utf-8")
    return status


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
