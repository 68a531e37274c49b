"""Words of the command line become messages."""

from __future__ import annotations

import argparse
from pathlib import Path

import pytest

from inset.cli import main, render
from inset.cli.messages import check_media, split_words, user_message
from inset.cli.options import read_options
from inset.errors import ConfigError


@pytest.mark.parametrize(
    ("item", "modality", "told"),
    [
        ("shapes.png", None, "image"),
        ("clips/moves.mp4", None, "video"),
        ("https://example.org/speech.wav?token=1", None, "audio"),
        ("no-ending", None, "image"),
        ("notes.txt", None, "image"),
        ("moves.mp4", "image", "image"),
    ],
)
def test_name_of_a_file_tells_its_modality_unless_it_is_said(item: str, modality: str | None, told: str) -> None:
    assert user_message("What is it?", [item], modality)["content"] == [{"type": told, told: item}, {"type": "text", "text": "What is it?"}]


def test_urls_and_files_that_are_there_pass(tmp_path: Path) -> None:
    (tmp_path / "a [1].png").touch()
    check_media([str(tmp_path / "a [1].png"), "http://[::1/never-closed.png", "DATA:,", "zip+https://a.example/b.zip"])


@pytest.mark.parametrize("item", ["missing.png", "//[missing/a.png", "c:\\missing.png", "1:missing.png", ""])
def test_what_is_neither_is_refused(item: str) -> None:
    with pytest.raises(ConfigError, match="There is no file"):
        check_media([item])


@pytest.mark.parametrize(
    ("words", "model", "media"),
    [
        (["shapes", "a.png", "b.png"], "shapes", ["a.png", "b.png"]),
        (["shapes", "--text", "hi", "a.png"], "shapes", ["a.png"]),
        (["shapes", "a.png", "--text", "hi", "b.png", "--modality", "image", "c.png"], "shapes", ["a.png", "b.png", "c.png"]),
        (["--text", "hi", "shapes", "a.png"], "shapes", ["a.png"]),
        (["--model", "shapes", "a.png"], "shapes", ["a.png"]),
        (["a.png", "--model", "shapes", "b.png"], "shapes", ["a.png", "b.png"]),
        (["--model=shapes"], "shapes", []),
        (["shapes"], "shapes", []),
    ],
)
def test_media_are_the_words_behind_the_model_wherever_options_stand(
    words: list[str], model: str, media: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: list[tuple[str, list[str]]] = []

    def run(args: argparse.Namespace) -> int:
        found = split_words(args)
        seen.append((read_options(args, {}).model.model, found))
        return 0

    monkeypatch.setattr(render, "run", run)
    assert main(["render", *words]) == 0
    assert seen == [(model, media)]


@pytest.mark.parametrize("words", [["shapes", "--txt", "hi", "a.png"], ["shapes", "-x"]])
def test_an_option_that_is_not_there_is_still_wrong(words: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        main(["render", *words])
    assert ended.value.code == 2
    assert f"unrecognized arguments: {' '.join(words[1:])}" in capsys.readouterr().err


def test_a_second_model_to_serve_is_wrong(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main(["serve", "shapes", "--port", "0", "other"])
    assert "unrecognized arguments: other" in capsys.readouterr().err
