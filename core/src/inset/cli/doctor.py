"""`inset doctor`: what this installation has, what it lacks, and whether a running server answers."""

from __future__ import annotations

import argparse
import json
from typing import TYPE_CHECKING, Final

from inset.cli.plugins import add_plugin_options, read_plugin_config

if TYPE_CHECKING:
    from inset.cli.checkup import Finding

__all__ = ["add_arguments", "run"]

_SIGNS: Final = {"ok": "ok  ", "note": "note", "fault": "FAIL"}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Adds the server to ask, and the form of the report."""
    add_plugin_options(parser)
    parser.add_argument("--url", metavar="URL", help="also send test requests to this running server, such as http://127.0.0.1:8000")
    parser.add_argument("--api-key", metavar="KEY", help="API key of that server")
    parser.add_argument("--json", action="store_true", help="print JSON for programs")


def run(args: argparse.Namespace) -> int:
    """Prints the findings; 1 says that one of them is a fault."""
    from inset.cli.checkup import check_installation, check_server

    findings = list(check_installation(read_plugin_config(args)))
    if args.url is not None:
        findings += check_server(args.url, args.api_key)
    if args.json:
        print(json.dumps([finding._asdict() for finding in findings], indent=2))
    else:
        _print(findings)
    return 1 if any(finding.verdict == "fault" for finding in findings) else 0


def _print(findings: list[Finding]) -> None:
    width = max(len(finding.subject) for finding in findings)
    for finding in findings:
        print(f"{_SIGNS[finding.verdict]}  {finding.subject.ljust(width)}  {finding.text}")
