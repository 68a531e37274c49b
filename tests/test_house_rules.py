"""The rules of the house, as far as a program can check them. An exception needs a line with its reason in house_rules.toml."""

from __future__ import annotations

import ast
import inspect
import re
import subprocess
import sys
import tokenize
import tomllib
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

from inset import hookspecs
from inset.plugins.checks import HOOKS

ROOT = Path(__file__).parent.parent
SOURCES = tuple(sorted([*ROOT.glob("core/src/**/*.py"), *ROOT.glob("plugins/*/src/**/*.py")]))
PLUGINS = tuple(sorted(ROOT.glob("plugins/*/src/*/plugin.py")))
EXCEPTIONS = tomllib.loads((ROOT / "tests" / "house_rules.toml").read_text("utf-8"))

MAX_MODULE_LINES = 300
MAX_SUITE_LINES = 500
MAX_FUNCTION_LINES = 35
MAX_PLUGIN_LINES = 60


def relative(path: Path) -> str:
    return path.relative_to(ROOT).as_posix()


@cache
def parse(path: Path) -> ast.Module:
    return ast.parse(path.read_text("utf-8"), str(path))


@cache
def code_lines(path: Path) -> frozenset[int]:
    """The numbers of the lines that hold code: neither blank, nor comment, nor docstring."""
    ignored = {tokenize.COMMENT, tokenize.NL, tokenize.NEWLINE, tokenize.INDENT, tokenize.DEDENT, tokenize.ENDMARKER, tokenize.ENCODING}
    with path.open("rb") as file:
        tokens = [token for token in tokenize.tokenize(file.readline) if token.type not in ignored]
    lines = {line for token in tokens for line in range(token.start[0], token.end[0] + 1)}
    for node in ast.walk(parse(path)):
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str):
            lines -= set(range(node.lineno, (node.end_lineno or node.lineno) + 1))
    return frozenset(lines)


def functions(path: Path) -> Iterator[ast.FunctionDef | ast.AsyncFunctionDef]:
    for node in ast.walk(parse(path)):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            yield node


# Sizes


def test_modules_are_small_enough_to_be_one_thing() -> None:
    sizes = {relative(path): len(code_lines(path)) for path in SOURCES}
    limits = {path: MAX_SUITE_LINES if "/conformance/" in path else MAX_MODULE_LINES for path in sizes}
    assert {path: size for path, size in sizes.items() if size > limits[path] and path not in EXCEPTIONS["module_lines"]} == {}


def test_functions_are_small_enough_to_be_read_at_once() -> None:
    sizes: dict[str, int] = {}
    for path in SOURCES:
        for function in functions(path):
            body = range(function.body[0].lineno, (function.end_lineno or function.lineno) + 1)
            sizes[f"{relative(path)}::{function.name}"] = len(code_lines(path).intersection(body))
    assert {name: size for name, size in sizes.items() if size > MAX_FUNCTION_LINES and name not in EXCEPTIONS["function_lines"]} == {}


def test_every_exception_has_a_reason_and_is_still_needed() -> None:
    for rule, exceptions in EXCEPTIONS.items():
        for name, reason in exceptions.items():
            assert len(reason) > 20, f"{rule}: say why {name} is an exception"
            path, _, function = name.partition("::")
            assert (ROOT / path).is_file(), f"{rule}: {name} is gone"
            assert not function or function in {node.name for node in functions(ROOT / path)}, f"{rule}: {name} is gone"


# Modules


@pytest.mark.parametrize("path", SOURCES, ids=relative)
def test_module_says_what_it_is_and_exports_what_it_has(path: Path) -> None:
    tree = parse(path)
    assert ast.get_docstring(tree), "a module begins with what it is"
    listed = {name for node in tree.body for name in exported(node)}
    defined = {name for node in tree.body for name in bound(node)}
    assert listed <= defined, "a name in __all__ that is not there"


def exported(node: ast.stmt) -> set[str]:
    if isinstance(node, ast.Assign) and any(isinstance(target, ast.Name) and target.id == "__all__" for target in node.targets):
        return set(ast.literal_eval(node.value))
    return set()


def bound(node: ast.stmt) -> set[str]:
    if isinstance(node, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
        return {node.name}
    if isinstance(node, ast.Import | ast.ImportFrom):
        return {alias.asname or alias.name for alias in node.names}
    if isinstance(node, ast.If):
        return {name for child in [*node.body, *node.orelse] for name in bound(child)}
    targets = node.targets if isinstance(node, ast.Assign) else [node.target] if isinstance(node, ast.AnnAssign) else []
    return {name.id for target in targets for name in ast.walk(target) if isinstance(name, ast.Name)}


def test_what_is_still_to_do_names_its_issue() -> None:
    left = re.compile(r"#.*\b(TODO(?!\(#\d+\))|FIXME|XXX)\b")
    found = {
        f"{relative(path)}:{n}" for path in SOURCES for n, line in enumerate(path.read_text("utf-8").splitlines(), 1) if left.search(line)
    }
    assert found == set()


def test_no_module_is_a_drawer_for_everything() -> None:
    drawers = {"utils", "util", "helpers", "helper", "common", "misc"}
    assert {relative(path) for path in SOURCES if drawers & {path.stem, *path.parts}} == set()


# Plugins


@pytest.mark.parametrize("path", PLUGINS, ids=relative)
def test_plugin_module_is_short_and_imports_the_marker_alone(path: Path) -> None:
    """Every process and every listing imports it, so what it imports, all of them pay for."""
    tree = parse(path)
    assert len(path.read_text("utf-8").splitlines()) < MAX_PLUGIN_LINES
    imports = {ast.unparse(node) for node in tree.body if isinstance(node, ast.Import | ast.ImportFrom)}
    assert imports <= {"from __future__ import annotations", "from typing import TYPE_CHECKING", "from inset import hookimpl"}
    allowed = (ast.Import, ast.ImportFrom, ast.FunctionDef, ast.Expr)
    for node in tree.body:
        assert isinstance(node, allowed) or (isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING"), ast.unparse(node)
        if isinstance(node, ast.FunctionDef) and not node.name.startswith("_"):
            assert [ast.unparse(decorator) for decorator in node.decorator_list] == ["hookimpl"], f"{node.name} lacks @hookimpl"
            assert node.name in HOOKS


LIGHT = {"import inset": "import inset", "inset plugins list": "from inset.cli import main; main(['plugins', 'list'])"} | {
    f"{path.parent.name}.plugin": f"import {path.parent.name}.plugin" for path in PLUGINS
}


@pytest.mark.parametrize("code", LIGHT.values(), ids=LIGHT)
def test_nothing_heavy_is_imported_to_find_out_what_there_is(code: str) -> None:
    code += (
        "; import sys; print(sorted({'torch', 'transformers', 'av', 'numpy', 'aiohttp', 'pydantic'} & set(sys.modules)), file=sys.stderr)"
    )
    ended = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=True)
    assert ended.stderr == "[]\n"


# Hooks


def signature(hook: str) -> str:
    """The hook's signature, with its annotations as they are written."""
    function = getattr(hookspecs, hook)
    return hook + str(inspect.signature(function)).replace("'", "")


@pytest.mark.parametrize("hook", HOOKS)
def test_hook_is_documented_with_its_exact_signature(hook: str) -> None:
    page = (ROOT / "docs" / "reference" / "hooks.md").read_text("utf-8").splitlines()
    assert f"## `{signature(hook)}`" in page


def test_hooks_page_has_no_hook_that_is_gone() -> None:
    page = (ROOT / "docs" / "reference" / "hooks.md").read_text("utf-8")
    assert set(re.findall(r"^## `(\w+)\(", page, re.MULTILINE)) == set(HOOKS)


@pytest.mark.parametrize("hook", HOOKS)
def test_hook_says_when_it_is_called(hook: str) -> None:
    assert "Called once" in (inspect.getdoc(getattr(hookspecs, hook)) or "")


def test_every_hook_has_a_test_of_its_own() -> None:
    tested = {function.name for path in ROOT.glob("core/tests/plugins/test_*.py") for function in functions(path)}
    assert {f"test_hook_{hook}" for hook in HOOKS} <= tested


def test_every_stage_at_which_a_plugin_fails_is_explained() -> None:
    written = "".join(path.read_text("utf-8") for path in ROOT.glob("core/src/inset/plugins/*.py"))
    stages = set(re.findall(r'(?:stage=|isolated\([\w.]+, )"(\w+)"', written)) - {"get_media_io"}
    assert len(stages) == 6
    page = (ROOT / "docs" / "how-to" / "plugins.md").read_text("utf-8")
    assert stages <= set(re.findall(r"^\| (\w+) \|", page, re.MULTILINE))
