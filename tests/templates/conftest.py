"""Renders a template in an environment of its own, fills it in, and runs its tests."""

from __future__ import annotations

import ast
import queue
import re
import subprocess
import threading
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest

DOCS = Path(__file__).parents[2] / "docs"
READY_SECONDS = 120.0


class Rendered:
    """A package that `inset new` has written, installed in an environment."""

    def __init__(self, environment: Any, folder: Path) -> None:
        self.environment = environment
        self.folder = folder

    def run_tests(self, *words: str) -> dict[str, str]:
        """Returns the name of each test of the package -> ``passed``, ``skipped``, or what it failed with."""
        report = self.folder / "report.xml"
        self.environment.run(
            "python", "-m", "pytest", "-q", "-p", "no:cacheprovider", f"--junit-xml={report}", *words, cwd=self.folder, status=None
        )
        outcomes = {}
        for case in ElementTree.parse(report).iter("testcase"):  # noqa: S314  # pytest's own
            failed = next((child for child in case if child.tag in ("failure", "error")), None)
            skipped = case.find("skipped") is not None
            said = "" if failed is None else str(failed.get("message")) + str(failed.text)
            outcomes[str(case.get("name"))] = said or ("skipped" if skipped else "passed")
        return outcomes

    def assert_only_unwritten_parts_fail(self) -> None:
        """Asserts that each failing test says what its author has to write, and that the plugin itself is in order."""
        outcomes = self.run_tests()
        failures = {name: said for name, said in outcomes.items() if said not in ("passed", "skipped")}
        assert failures
        assert not {name: said for name, said in failures.items() if "NotImplementedError: Write " not in said}
        assert outcomes["test_plugin_loads_with_all_that_it_registers"] == "passed"
        assert outcomes["test_plugin_module_is_light"] == "passed"

    def assert_everything_passes(self) -> None:
        """Asserts that no test fails."""
        failures = {name: said for name, said in self.run_tests().items() if said not in ("passed", "skipped")}
        assert not failures, "\n".join(failures.values())

    def fill_in(self, file: str, block: str) -> None:
        """Does by program what a reader does by hand: takes imports over, and functions in place of those of the same name."""
        path = self.folder / file
        path.write_text(merge(path.read_text("utf-8"), block), "utf-8")


def merge(source: str, block: str) -> str:
    """Returns the source with the block's imports, and with the block's functions inside the first class that lacks or has them."""
    tree = ast.parse(block)
    imports = [ast.unparse(node) for node in tree.body if isinstance(node, ast.Import | ast.ImportFrom)]
    source = source.replace("from __future__ import annotations\n", "\n".join(["from __future__ import annotations", *imports, ""]), 1)
    for node in tree.body:
        if isinstance(node, ast.FunctionDef):
            source = put_function(source, node)
    return source


def put_function(source: str, function: ast.FunctionDef) -> str:
    lines = source.splitlines()
    classes = [node for node in ast.parse(source).body if isinstance(node, ast.ClassDef)]
    body = ["    " + line if line else line for line in ast.unparse(function).splitlines()]
    for owner in classes:
        for node in owner.body:
            if isinstance(node, ast.FunctionDef) and node.name == function.name:
                return "\n".join([*lines[: node.lineno - 1], *body, *lines[node.end_lineno :], ""])
    end = classes[0].end_lineno or len(lines)
    return "\n".join([*lines[:end], "", *body, *lines[end:], ""])


@pytest.fixture(scope="session")
def environment(make_environment: Callable[..., Any]) -> Any:
    """The core and LLaVA, as wheels."""
    return make_environment("core", "plugins/llava")


@pytest.fixture
def render(environment: Any, tmp_path: Path) -> Callable[[str, str], Rendered]:
    """Runs `inset new` and installs what it wrote."""

    def make(kind: str, name: str) -> Rendered:
        environment.run("inset", "new", kind, name, cwd=tmp_path)
        environment.pip("install", "--no-deps", "--no-index", "--no-build-isolation", "--editable", tmp_path / f"inset-{name}")
        return Rendered(environment, tmp_path / f"inset-{name}")

    return make


@pytest.fixture
def serve(environment: Any) -> Callable[..., AbstractContextManager[str]]:
    """Runs `inset serve` in the environment for as long as its URL is in use."""

    @contextmanager
    def start(*words: str | Path) -> Iterator[str]:
        command = [environment.bin / "inset", "serve", *words, "--port", "0", "--in-process", "--engine-threads", "1"]
        process = subprocess.Popen([str(word) for word in command], cwd=environment.folder, stderr=subprocess.PIPE, text=True)
        assert process.stderr is not None
        log: queue.Queue[str] = queue.Queue()
        reader = threading.Thread(target=lambda lines: deque(map(log.put, lines), 0), args=(process.stderr,))
        reader.start()
        try:
            said = log.get(timeout=READY_SECONDS)
            while not (ready := re.search(r"is ready at (http://\S+)/v1", said)):
                said = log.get(timeout=READY_SECONDS)
            yield ready[1]
        finally:
            process.terminate()
            process.wait(READY_SECONDS)
            reader.join(READY_SECONDS)
            process.stderr.close()

    return start


@pytest.fixture
def code_of() -> Callable[[str], Sequence[str]]:
    """Returns the Python blocks of a page."""

    def read(page: str) -> Sequence[str]:
        return re.findall(r"```python\n(.*?)```", (DOCS / page).read_text("utf-8"), re.DOTALL)

    return read
