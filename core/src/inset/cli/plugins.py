"""`inset plugins`: what is installed, what it provides, and why something is not loaded."""

from __future__ import annotations

import argparse
import contextlib
import dataclasses
import json
import sys
from collections.abc import Sequence
from typing import Final

from inset.config import PluginConfig
from inset.options import read_environment
from inset.plugins import PluginHost, PluginReport, PluginState
from inset.registry import normalize_name

__all__ = ["add_arguments", "add_plugin_options", "read_plugin_config", "run"]

EXIT_OK: Final = 0
EXIT_FAILURE: Final = 1
EXIT_UNKNOWN_NAME: Final = 2


def add_plugin_options(parser: argparse.ArgumentParser) -> None:
    """Adds the options that choose plugins, for every command that loads some."""
    group = parser.add_argument_group("plugins")
    group.add_argument(
        "--plugin",
        action="append",
        metavar="NAME",
        help="load only the plugins that are named like this; an empty NAME leaves the built-ins",
    )
    group.add_argument("--no-plugin", action="append", metavar="NAME", help="leave this plugin out")
    group.add_argument("--strict-plugins", action="store_true", default=None, help="a plugin that fails to load is fatal")
    group.add_argument("--trace-hooks", action="store_true", default=None, help="print every hook call to standard error")


def read_plugin_config(args: argparse.Namespace) -> PluginConfig:
    """Returns what the command line says, or else the environment, or else the defaults."""
    given = {
        "plugins": None if args.plugin is None else _split(args.plugin),
        "no_plugins": None if args.no_plugin is None else _split(args.no_plugin),
        "strict_plugins": args.strict_plugins,
        "trace_hooks": args.trace_hooks,
    }
    return PluginConfig(**read_environment(PluginConfig) | {name: value for name, value in given.items() if value is not None})


def _split(values: Sequence[str]) -> tuple[str, ...]:
    return tuple(name.strip() for value in values for name in value.split(",") if name.strip())


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Adds ``list``, ``check NAME`` and ``why NAME``."""
    actions = parser.add_subparsers(dest="action", metavar="ACTION", required=True)
    listing = actions.add_parser("list", help="list the installed plugins and what became of them", allow_abbrev=False)
    listing.add_argument("--json", action="store_true", help="print JSON for programs")
    checking = actions.add_parser("check", help="load all that a plugin provides, and measure it", allow_abbrev=False)
    why = actions.add_parser("why", help="say what a plugin provides, or why it is not loaded", allow_abbrev=False)
    for action in (checking, why):
        action.add_argument("name", metavar="NAME", help="name of a plugin or of its distribution")
    for action in (listing, checking, why):
        add_plugin_options(action)


def run(args: argparse.Namespace) -> int:
    """Runs one action; 2 says that there is no plugin of that name."""
    # What a plugin prints while it is imported must not get between the lines of a listing, or into its JSON.
    with contextlib.redirect_stdout(sys.stderr):
        host = PluginHost(read_plugin_config(args), tolerant=True)
    if args.action == "list":
        _print_json(host) if args.json else _print_table(host.report())
        return _closing_word(host)
    reports = [report for report in host.report() if _is_meant(report, args.name)]
    if not reports:
        there = ", ".join(report.name for report in host.report())
        print(f"inset: There is no plugin {args.name!r}. Installed: {there}.", file=sys.stderr)
        return EXIT_UNKNOWN_NAME
    if args.action == "why":
        for report in reports:
            _print_reasons(report)
        return _closing_word(host)
    return max(_check(host, report) for report in reports)


def _is_meant(report: PluginReport, name: str) -> bool:
    return normalize_name(name) in {report.name, normalize_name(report.distribution)}


def _closing_word(host: PluginHost) -> int:
    if host.failure is None:
        return EXIT_OK
    print(f"inset: With these options start-up fails. {host.failure}", file=sys.stderr)
    return EXIT_FAILURE


def _print_json(host: PluginHost) -> None:
    """Prints the reports and the fingerprint of the loaded set."""
    plugins = [dataclasses.asdict(report) | {"provides": [item._asdict() for item in report.provides]} for report in host.report()]
    print(json.dumps({"fingerprint": host.fingerprint(), "plugins": plugins}, indent=2))


def _print_table(reports: Sequence[PluginReport]) -> None:
    """Prints a line for each plugin, and below it what is wrong or worth a word."""
    widths = [max(len(text) for text in column) for column in zip(*(_columns(report) for report in reports), strict=True)]
    for report in reports:
        print("  ".join(text.ljust(width) for text, width in zip(_columns(report), widths, strict=True)).rstrip() + _summary(report))
        if report.error:
            print(f"    {report.stage}: {report.error}")
        if report.hint:
            print(f"    {report.hint}")


def _columns(report: PluginReport) -> tuple[str, str, str]:
    return (report.name, f"{report.distribution} {report.version}", report.state.value)


def _summary(report: PluginReport) -> str:
    kinds: dict[str, list[str]] = {}
    for item in report.provides:
        kinds.setdefault(item.kind, []).append(item.name)
    return "".join(f"  {kind}: {', '.join(names)};" for kind, names in kinds.items()).removesuffix(";")


def _print_reasons(report: PluginReport) -> None:
    """Prints all that is known about one plugin."""
    print(f"{report.name} ({report.distribution} {report.version}) is {report.state}.")
    if report.error:
        print(f"  Why: it failed at the stage {report.stage!r}.\n  {report.error}")
    if report.hint:
        print(f"  {report.hint}")
    if report.import_seconds:
        print(f"  Its import took {report.import_seconds * 1000:.0f} ms.")
    print("  It provides:" if report.provides else "  It provides nothing.")
    for item in report.provides:
        print(f"    {item.kind} {item.name}" + (f" ({item.detail})" if item.detail else ""))


def _check(host: PluginHost, report: PluginReport) -> int:
    """Loads all that a plugin provides, prints what each costs, and returns 0 if everything is right."""
    _print_reasons(report)
    if report.state is not PluginState.LOADED:
        return EXIT_FAILURE
    from inset.cli.plugin_check import check_provisions

    return EXIT_OK if check_provisions(host, report) else EXIT_FAILURE
