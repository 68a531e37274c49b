"""The pages about fetching say what the code does."""

from __future__ import annotations

import dataclasses
import re
import subprocess
import sys
from pathlib import Path

import pytest

from inset.config import MediaConfig
from inset.errors import MediaFetchError, MediaPolicyError, MediaTimeoutError, TooLargeError
from inset.media.data_url import MAX_HEADER_CHARACTERS
from inset.media.fetch_places import MAX_SHARED, MAX_SHARED_PER_HOST
from inset.media.frame_list import MOST_FRAMES
from inset.media.gather import MAX_AT_ONCE
from inset.media.http import MAX_REDIRECTS
from inset.media.look_ups import LOOK_UP_SECONDS, MAX_LOOK_UPS, MAX_LOOK_UPS_OF_KNOWN_HOSTS, MAX_LOOK_UPS_PER_DOMAIN
from inset.media.url import MAX_URL_CHARACTERS
from inset.testing.conformance.connector import ConnectorConformance

DOCS = Path(__file__).parents[2] / "docs"
REFERENCE = (DOCS / "reference" / "media-fetching.md").read_text("utf-8")
HOW_TO = (DOCS / "how-to" / "write-a-connector.md").read_text("utf-8")
FIXED_LIMITS = (
    int(LOOK_UP_SECONDS),
    MAX_AT_ONCE,
    MOST_FRAMES,
    MAX_HEADER_CHARACTERS,
    MAX_LOOK_UPS,
    MAX_LOOK_UPS_OF_KNOWN_HOSTS,
    MAX_LOOK_UPS_PER_DOMAIN,
    MAX_REDIRECTS,
    MAX_SHARED,
    MAX_SHARED_PER_HOST,
    MAX_URL_CHARACTERS,
)


def test_every_conformance_case_is_listed_under_its_number() -> None:
    cases = sorted(name.split("_")[1] for name in vars(ConnectorConformance) if name.startswith("test_"))
    assert re.findall(r"^\| (\d\d) \|", REFERENCE, re.MULTILINE) == cases


def test_options_stand_there_with_their_defaults() -> None:
    defaults = {item.name: item.default for item in dataclasses.fields(MediaConfig)}
    rows = re.findall(r"^\| `--([a-z-]+)` \| ([\d.]+) \|", REFERENCE, re.MULTILINE)
    rows += re.findall(r"`--(download-cache-[a-z-]+)` \(([\d.]+)\)", REFERENCE)
    assert len(rows) == 11
    for option, default in rows:
        assert str(defaults[option.replace("-", "_")]) == default, option


def test_all_options_of_fetching_are_mentioned() -> None:
    about_fetching = re.compile(r"connector|domain|private|local_media|redirect|download|fetch")
    for item in dataclasses.fields(MediaConfig):
        if about_fetching.search(item.name):
            assert "--" + item.name.replace("_", "-") in REFERENCE, item.name


@pytest.mark.parametrize("number", FIXED_LIMITS)
def test_fixed_limits_stand_there(number: int) -> None:
    assert f"{number:,}" in REFERENCE


@pytest.mark.parametrize("error", [MediaFetchError, MediaPolicyError, MediaTimeoutError, TooLargeError])
def test_codes_stand_there(error: type[MediaFetchError]) -> None:
    assert f"`{error.default_code}`" in REFERENCE


def test_connector_of_the_how_to_passes_the_conformance_suite(tmp_path: Path) -> None:
    connector, _, suite = re.findall(r"^```python\n(.*?)^```", HOW_TO, re.MULTILINE | re.DOTALL)
    (tmp_path / "test_shelf.py").write_text(connector + suite, "utf-8")
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "--rootdir", str(tmp_path), str(tmp_path)]
    seen = subprocess.run(command, capture_output=True, text=True, timeout=300)
    assert seen.returncode == 0, seen.stdout
    assert re.search(r"2\d passed", seen.stdout)
