"""What the README shows can be pasted."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
import torch

from inset.config import MediaConfig
from inset.engine.content_parts import ContentPolicy, MediaPart, parse_content
from inset.media.fetcher import MediaFetcher
from inset.testing.media_io import EncodedBytesIO

ROOT = Path(__file__).parents[2]
README = (ROOT / "README.md").read_text("utf-8")
PYTHON = re.findall(r"```python\n(.*?)```", README, re.DOTALL)


@pytest.fixture(autouse=True)
def _in_this_folder(monkeypatch: pytest.MonkeyPatch) -> None:
    torch.set_num_threads(1)
    monkeypatch.chdir(ROOT)


def example(words: str) -> str:
    found: list[str] = [block for block in PYTHON if words in block]
    assert len(found) == 1
    return found[0]


def test_question_about_a_picture_is_answered(capsys: pytest.CaptureFixture[str]) -> None:
    exec(example("LLM("), {})  # noqa: S102 - the README's own code
    assert capsys.readouterr().out == "a red circle and a blue square\n"


def test_core_shows_where_the_picture_stands(capsys: pytest.CaptureFixture[str]) -> None:
    exec(example("Core.open"), {})  # noqa: S102
    assert "PlaceholderRange(offset=" in capsys.readouterr().out


def test_connector_serves_its_scheme() -> None:
    names: dict[str, object] = {}
    exec(example("MediaConnector"), names)  # noqa: S102
    connector = names["GreetingConnector"]
    with MediaFetcher([connector()], MediaConfig()) as fetcher:  # type: ignore[operator]
        assert fetcher.fetch_image("greeting:world", EncodedBytesIO()).decode() == b"hello"


def test_curl_example_sends_a_conversation_that_can_be_read() -> None:
    [body] = re.findall(r"-d '(\{.*?\})'\n", README.replace("""'"$PICTURE"'""", "data:image/jpeg;base64,AAAA"), re.DOTALL)
    [message] = json.loads(body)["messages"]
    parts = parse_content(message["content"], ContentPolicy(), parameter="messages[0].content")
    assert [type(part) for part in parts].count(MediaPart) == 1


def test_pictures_and_clips_that_are_asked_about_are_there() -> None:
    named = re.findall(r"""(?:< |inset chat \S+ |picture = ")([^\s"]+)""", README)
    assert len(named) == 5
    assert all((ROOT / path).is_file() for path in named)


@pytest.mark.parametrize("target", re.findall(r"`?make (\w+)`?", README))
def test_make_targets_exist(target: str) -> None:
    assert re.search(rf"^{target}:", (ROOT / "Makefile").read_text("utf-8"), re.MULTILINE)
