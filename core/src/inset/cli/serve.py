"""`inset serve MODEL`: the OpenAI-compatible server."""

from __future__ import annotations

import argparse

from inset.cli.options import add_options, read_options

__all__ = ["add_arguments", "run"]


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Adds the model, every option, and the level of the log."""
    add_options(parser)
    parser.add_argument(
        "--log-level", default="INFO", choices=("DEBUG", "INFO", "WARNING", "ERROR"), help="least important lines of the log"
    )


def run(args: argparse.Namespace) -> int:
    """Serves until SIGTERM or Ctrl-C."""
    configs = read_options(args)
    from inset.server.launch import serve

    return serve(configs, log_level=args.log_level)
