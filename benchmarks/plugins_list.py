"""How long `inset plugins list` takes with 100 installed plugins: ``python -m benchmarks.plugins_list``."""

from __future__ import annotations

import argparse
import os
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from inset.testing.plugin_site import PluginSite

TARGET_SECONDS = 0.5

PLUGIN = """
@hookimpl
def register_models(registry):
    registry.register("Fake{number}ForConditionalGeneration", adapter="fake_{number}.model:Model")

@hookimpl
def register_processors(registry):
    registry.register("fake_{number}", processor="fake_{number}.p:P", info="fake_{number}.p:I", dummy_inputs="fake_{number}.p:D")
"""


class Cost(NamedTuple):
    """What one process costs at best; CPU seconds hold on a busy machine too."""

    wall_seconds: float
    cpu_seconds: float


def measure(words: Sequence[str], folder: Path, rounds: int) -> Cost:
    """Runs a process several times and returns the least of each; the first round, which writes byte code, does not count."""
    left_out = ("INSET_", "PYTHONDONTWRITEBYTECODE")
    environment = {name: value for name, value in os.environ.items() if not name.startswith(left_out)} | {"PYTHONPATH": str(folder)}
    costs = []
    for _ in range(rounds + 1):
        used, started = resource.getrusage(resource.RUSAGE_CHILDREN), time.perf_counter()
        subprocess.run([sys.executable, *words], env=environment, stdout=subprocess.DEVNULL, check=True)
        wall, after = time.perf_counter() - started, resource.getrusage(resource.RUSAGE_CHILDREN)
        costs.append(Cost(wall, after.ru_utime - used.ru_utime + after.ru_stime - used.ru_stime))
    return Cost(min(cost.wall_seconds for cost in costs[1:]), min(cost.cpu_seconds for cost in costs[1:]))


def main() -> None:
    """Installs the fake plugins into a temporary folder, lists them, and prints times and ratios."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--plugins", type=int, default=100)
    parser.add_argument("--rounds", type=int, default=9)
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        site = PluginSite(Path(name))
        for number in range(args.plugins):
            site.install(f"fake-{number}", code=PLUGIN.format(number=number))
        bare = measure(["-c", ""], site.folder, args.rounds)
        scan = measure(["-c", "import importlib_metadata as m; len(m.entry_points(group='inset'))"], site.folder, args.rounds)
        listing = measure(["-m", "inset", "plugins", "list"], site.folder, args.rounds)
    print(
        f"plugins list, {args.plugins} plugins: {listing.wall_seconds:.3f} s ({listing.cpu_seconds:.3f} s of CPU time); "
        f"{listing.wall_seconds / TARGET_SECONDS:.2f} of the target of {TARGET_SECONDS} s"
    )
    print(
        f"  Python alone {bare.cpu_seconds:.3f} s of CPU time, with one scan of the entry points {scan.cpu_seconds:.3f} s: "
        f"listing is {listing.cpu_seconds / scan.cpu_seconds:.2f} times that"
    )


if __name__ == "__main__":
    main()
