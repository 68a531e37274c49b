"""Runs every benchmark, one after the other: ``python -m benchmarks [NAME ...]``. Each is a script of its own with options of its own."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

NEEDS_A_SERVER = {"serve", "stalls"}


def main() -> int:
    """Runs the benchmarks named on the command line, or all that need no running server."""
    folder = Path(__file__).parent
    there_are = sorted(path.stem for path in folder.glob("*.py") if not path.stem.startswith("_"))
    names = sys.argv[1:] or [name for name in there_are if name not in NEEDS_A_SERVER]
    unknown = [name for name in names if name not in there_are]
    if unknown:
        print(f"There is no benchmark {', '.join(unknown)}; there are {', '.join(there_are)}.", file=sys.stderr)
        return 2
    failed = []
    for name in names:
        print(f"\n== {name}", flush=True)
        if subprocess.run([sys.executable, "-m", f"benchmarks.{name}"], check=False).returncode:
            failed.append(name)
    if failed:
        print(f"\nfailed: {', '.join(failed)}", file=sys.stderr)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
