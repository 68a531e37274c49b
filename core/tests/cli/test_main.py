from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from types import ModuleType

import pytest

import inset
from inset import cli
from inset.errors import ConfigError


@pytest.fixture
def command(monkeypatch: pytest.MonkeyPatch) -> Iterator[ModuleType]:
    """A command named ``probe``; the test gives it its ``run``."""
    module = ModuleType("inset.cli.probe")
    module.add_arguments = lambda parser: None  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "inset.cli.probe", module)
    monkeypatch.setitem(cli.COMMANDS, "probe", "probe something")
    return module


def raising(error: BaseException) -> object:
    def run(args: object) -> int:
        raise error

    return run


def test_status_of_the_command_is_the_status_of_the_process(command: ModuleType) -> None:
    command.run = lambda args: 7  # type: ignore[attr-defined]
    assert cli.main(["probe"]) == 7


def test_error_of_ours_is_one_line_without_traceback(command: ModuleType, capsys: pytest.CaptureFixture[str]) -> None:
    command.run = raising(ConfigError("No such thing."))  # type: ignore[attr-defined]
    assert cli.main(["probe"]) == 1
    assert capsys.readouterr().err == "inset: No such thing.\n"


def test_interrupt_ends_quietly(command: ModuleType, capsys: pytest.CaptureFixture[str]) -> None:
    command.run = raising(KeyboardInterrupt())  # type: ignore[attr-defined]
    assert cli.main(["probe"]) == 130
    assert capsys.readouterr().err == ""


@pytest.mark.parametrize(("words", "status"), [([], 2), (["no-such-command"], 2), (["plugins"], 2), (["--help"], 0), (["--version"], 0)])
def test_wrong_use_is_2_and_help_is_0(words: list[str], status: int, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        cli.main(words)
    assert ended.value.code == status
    said = capsys.readouterr()
    assert ("usage: inset" in said.err + said.out) or said.out == f"inset {inset.__version__}\n"


def test_help_names_every_command_and_imports_none(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    for name in cli.COMMANDS:
        monkeypatch.setitem(sys.modules, f"inset.cli.{name}", None)
    with pytest.raises(SystemExit):
        cli.main(["--help"])
    said = capsys.readouterr().out
    assert all(name in said for name in cli.COMMANDS)


def test_every_command_is_a_module_of_the_same_shape() -> None:
    for name in cli.COMMANDS:
        module = __import__(f"inset.cli.{name}", fromlist=["run"])
        assert callable(module.run)
        assert callable(module.add_arguments)


def test_reader_that_has_seen_enough_causes_no_traceback() -> None:
    read, write = os.pipe()
    os.close(read)
    try:
        ended = subprocess.run(
            [sys.executable, "-m", "inset", "plugins", "list"], stdout=write, stderr=subprocess.PIPE, text=True, timeout=60, check=False
        )
    finally:
        os.close(write)
    assert (ended.returncode, ended.stderr) == (1, "")


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["serve", "m", "--prot", "9"], "inset serve: error: unrecognized arguments: --prot 9 (did you mean --port?)"),
        (
            ["chat", "m", "--max-tokens=4", "--temprature=0"],
            "inset chat: error: unrecognized arguments: --temprature=0 (did you mean --temperature?)",
        ),
        (["plugins", "list", "llava"], "inset plugins: error: unrecognized arguments: llava"),
    ],
)
def test_unknown_option_is_named_with_the_nearest_and_without_a_page_of_usage(
    words: list[str], said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as ended:
        cli.main(words)
    assert ended.value.code == 2
    lines = capsys.readouterr().err.splitlines()
    assert lines[-1] == said
    assert len(lines) < 4


def test_help_says_what_an_option_is_when_nobody_gives_it(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        cli.main(["serve", "--help"])
    said = " ".join(capsys.readouterr().out.split())
    assert said.startswith("usage: inset serve [OPTION ...] MODEL Serve a model over the OpenAI API.")
    assert "0 takes a free one. Default: 8000. [INSET_PORT]" in said
    assert "Default: 256 MiB. [INSET_MAX_ITEM_DOWNLOAD_BYTES]" in said
    assert "Default: by the number of cores. [INSET_IMAGE_THREADS]" in said
    assert "Reuse the keys and values of equal prompt beginnings. Default: on." in said
    assert "Default: unset" not in said
    assert "Default: empty" not in said
