"""The reference pages say what the code says, and every link of every page leads somewhere."""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from inset import errors
from inset.config import Configs
from inset.options import iter_options

ROOT = Path(__file__).parents[2]
PAGES = (*sorted(ROOT.glob("docs/**/*.md")), ROOT / "README.md", *sorted(ROOT.glob("plugins/*/README.md")), ROOT / "core" / "README.md")
REFERENCE = ROOT / "docs" / "reference"


def relative(path: Path) -> str:
    return path.relative_to(ROOT).as_posix()


def links(page: Path) -> Iterator[str]:
    text = re.sub(r"```.*?```", "", page.read_text("utf-8"), flags=re.DOTALL)
    yield from re.findall(r"\]\(([^)\s]+)\)", text)


def anchors(page: Path) -> set[str]:
    """The anchors that a reader's browser finds: headings in lower case, spaces as hyphens, without punctuation."""
    headings = re.findall(r"^#+ (.+)$", page.read_text("utf-8"), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).strip().replace(" ", "-") for heading in headings}


def test_tables_of_the_reference_pages_are_those_of_the_code() -> None:
    ended = subprocess.run(
        [sys.executable, ROOT / "docs" / "generate.py", "--check"], capture_output=True, text=True, timeout=60, check=False
    )
    assert (ended.returncode, ended.stdout) == (0, ""), ended.stdout + ended.stderr


def test_every_option_is_on_its_page() -> None:
    page = (REFERENCE / "options.md").read_text("utf-8")
    for config in (type(getattr(Configs(), name)) for name in Configs.__dataclass_fields__):
        for item in iter_options(config):
            assert item.help in page, item.name


@pytest.mark.parametrize("page", PAGES, ids=relative)
def test_every_keyword_that_a_page_gives_to_an_engine_or_a_core_is_an_option(page: Path) -> None:
    options = {item.name for name in Configs.__dataclass_fields__ for item in iter_options(type(getattr(Configs(), name)))}
    calls = re.findall(r"(?:LLM|Core\.open)\(([^\n`]*)\)", page.read_text("utf-8"))
    assert {name for call in calls for name in re.findall(r"\b(\w+)=", call)} <= options


def test_every_error_is_on_its_page_with_its_code_and_status() -> None:
    rows = re.findall(r"^\| `(\w+)` \| (\d+) \| `(\w+)` \|", (REFERENCE / "errors.md").read_text("utf-8"), re.MULTILINE)
    assert {name: (code, int(status)) for code, status, name in rows} == {
        name: (getattr(errors, name).default_code, getattr(errors, name).status) for name in errors.__all__
    }


@pytest.mark.parametrize("page", PAGES, ids=relative)
def test_every_link_of_a_page_leads_somewhere(page: Path) -> None:
    for link in links(page):
        if re.match(r"[a-z]+:", link):
            continue
        path, _, anchor = link.partition("#")
        target = (page.parent / path).resolve() if path else page
        assert target.exists(), link
        assert target.is_relative_to(ROOT), link
        assert not anchor or anchor in anchors(target), link


def test_every_page_is_reached_from_the_index() -> None:
    index = ROOT / "docs" / "index.md"
    reached = {(index.parent / link.partition("#")[0]).resolve() for link in links(index)}
    assert {relative(page) for page in ROOT.glob("docs/**/*.md") if page != index and page.resolve() not in reached} == set()


def test_every_linked_line_of_the_architecture_page_is_a_file_of_the_code() -> None:
    page = ROOT / "docs" / "explanation" / "architecture.md"
    arrows = re.findall(r"^\| .+ → .+ \|.*$", page.read_text("utf-8"), re.MULTILINE)
    assert len(arrows) > 10
    for arrow in arrows:
        (link,) = re.findall(r"\]\(([^)]+)\)", arrow)
        assert (page.parent / link).resolve().is_file(), arrow


def test_the_suite_of_the_conformance_page_passes(tmp_path: Path) -> None:
    (code,) = re.findall(r"```python\n(.*?)```", (REFERENCE / "conformance.md").read_text("utf-8"), re.DOTALL)
    (tmp_path / "test_conformance.py").write_text(code, "utf-8")
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "test_conformance.py"]
    ended = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=120, check=False)
    assert ended.returncode == 0, ended.stdout + ended.stderr
