"""The command line: `inset COMMAND`; each command is a module here, imported when it is called."""

from __future__ import annotations

import argparse
import importlib
import os
import sys
from collections.abc import Sequence
from typing import Final, Protocol, cast

import inset
from inset.errors import InsetError

__all__ = ["COMMANDS", "Command", "main"]

COMMANDS: Final = {
    "new": "write a new plugin package: a connector, a model family, a cache type",
    "serve": "serve a model over the OpenAI API",
    "chat": "ask a model about pictures, in this terminal",
    "render": "show what a prompt with its pictures becomes, without running the model",
    "doctor": "look over this installation, and over a running server",
    "plugins": "list the installed plugins, check one, or find out why one is not loaded",
}
"""Command -> one line of help; `inset.cli.COMMAND` has ``add_arguments(parser)`` and ``run(args)``."""

EXIT_FAILURE: Final = 1
EXIT_INTERRUPTED: Final = 130


class Command(Protocol):
    """What a module of a command provides."""

    def add_arguments(self, parser: argparse.ArgumentParser) -> None:
        """Adds the command's options to its parser."""

    def run(self, args: argparse.Namespace) -> int:
        """Does the work, and returns the exit status: 0 where all is well, 1 where the work failed, 2 where it was asked for wrongly."""


def main(argv: Sequence[str] | None = None) -> int:
    """Runs one command and returns its exit status.

    Args:
        argv: The words after ``inset``; those of the process when None.
    """
    words = sys.argv[1:] if argv is None else list(argv)
    parser = argparse.ArgumentParser(prog="inset", description=inset.__doc__, allow_abbrev=False)
    parser.add_argument("--version", action="version", version=f"inset {inset.__version__}")
    commands = parser.add_subparsers(dest="command", metavar="COMMAND", required=True)
    called = next((word for word in words if not word.startswith("-")), None)
    for name, help_text in COMMANDS.items():
        subparser = commands.add_parser(name, help=help_text, description=f"{help_text[0].upper()}{help_text[1:]}.", allow_abbrev=False)
        if name == called:  # importing all of them would make every command as slow as the slowest
            _command(name).add_arguments(subparser)
    args, unknown = parser.parse_known_args(words)
    if unknown and hasattr(args, "words") and not any(word.startswith("-") for word in unknown):
        args.words += unknown  # argparse takes positional words from one place alone, and an option may stand between them
        unknown = []
    if unknown:
        subparser = commands.choices[args.command]
        subparser.error(f"unrecognized arguments: {' '.join(unknown)}{_suggestion(unknown, subparser)}")
    try:
        status = _command(args.command).run(args)
        sys.stdout.flush()
    except InsetError as error:
        print(f"inset: {error}", file=sys.stderr)
        return EXIT_FAILURE
    except KeyboardInterrupt:
        return EXIT_INTERRUPTED
    except BrokenPipeError:  # the reader, such as head, has seen enough; the interpreter must not flush into the pipe again
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return EXIT_FAILURE
    return status


def _suggestion(unknown: Sequence[str], parser: argparse.ArgumentParser) -> str:
    """Returns the option that was most likely meant, as the end of a message."""
    import difflib
    import re

    wrong = next((word.partition("=")[0] for word in unknown if word.startswith("--")), "")
    near = difflib.get_close_matches(wrong, re.findall(r"--[a-z][a-z.-]*", parser.format_help()), n=1)
    return f" (did you mean {near[0]}?)" if near else ""


def _command(name: str) -> Command:
    return cast("Command", importlib.import_module(f"inset.cli.{name}"))
