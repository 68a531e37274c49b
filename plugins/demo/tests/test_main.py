"""`python -m inset_demo`: a server, the official client, one answer, and what asking again saves."""

from __future__ import annotations

import re
import signal
import subprocess
import sys
from pathlib import Path

import psutil
import pytest

from inset_demo import __main__ as demo
from inset_demo.served import NotServedError, ServeProcess

WAIT_SECONDS = 120


def start(*words: str) -> subprocess.Popen[str]:
    return subprocess.Popen([sys.executable, "-m", "inset_demo", *words], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def test_demo_answers_right_tells_its_times_and_what_the_second_ask_saves() -> None:
    with start() as process:
        said, complaints = process.communicate(timeout=WAIT_SECONDS)
    assert process.returncode == 0, complaints
    assert complaints == ""
    assert said.count("a red circle and a blue square") == 2
    first, second = (set(re.findall(r"^  (\w+) +[\d.]+ ms$", half, re.MULTILINE)) for half in said.split("asked again"))
    assert first - second == {"decode", "materialize", "encode"}
    assert re.search(r"Not done again: decode, materialize, encode; 64 of 73 prompt tokens were still there\.\n$", said)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_interrupted_demo_leaves_no_server_behind(number: signal.Signals) -> None:
    with start() as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "$ inset serve shapes-llava --port 0\n"
        process.send_signal(number)
        family = psutil.Process(process.pid).children(recursive=True)
        said, complaints = process.communicate(timeout=WAIT_SECONDS)
    assert (process.returncode, said, complaints) == (demo.EXIT_INTERRUPTED, "", "")
    assert psutil.wait_procs(family, timeout=WAIT_SECONDS)[1] == []


def test_server_that_does_not_come_up_is_told_in_a_line(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("INSET_PLUGINS", "no-such-plugin")
    with start() as process:
        _, complaints = process.communicate(timeout=WAIT_SECONDS)
    assert process.returncode == demo.EXIT_FAILURE
    assert re.fullmatch(r"inset_demo: inset serve ended before it was ready: inset: .*no-such-plugin.*\n", complaints)


@pytest.fixture
def interpreter(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """What stands in for Python where a server is started: a shell that says what it is told to."""
    script = tmp_path / "python"
    script.touch(mode=0o755)
    monkeypatch.setattr(sys, "executable", str(script))
    return script


def test_server_that_dies_while_it_is_asked_is_told_with_its_last_line(interpreter: Path) -> None:
    from inset_demo.asking import ask, connect

    interpreter.write_text("#!/bin/sh\necho 'inset: x is ready at http://127.0.0.1:1/v1' >&2\necho 'inset: out of paper' >&2\nexit 3\n")
    with ServeProcess("x") as server:
        assert server.base_url == "http://127.0.0.1:1/v1"
        with pytest.raises(NotServedError, match=r"^inset serve has gone \(status 3\); its last line: inset: out of paper$"):
            with connect(server) as client:
                ask(client, "x", "what?", picture_url="data:,")


def test_server_that_is_never_ready_is_ended(interpreter: Path) -> None:
    interpreter.write_text("#!/bin/sh\necho 'still thinking' >&2\nexec cat /dev/zero > /dev/null\n")
    with pytest.raises(NotServedError, match=r"^inset serve was not ready within 0\.5 s; its last line: "):
        ServeProcess("x", ready_seconds=0.5)
    assert all(child.name() != "cat" for child in psutil.Process().children())


def test_picture_that_is_not_there_is_told_in_a_line_before_the_model_loads(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "argv", ["inset_demo", "no-such.png"])
    with pytest.raises(SystemExit) as ended:
        demo.main()
    assert ended.value.code == 2
    said = capsys.readouterr()
    assert said.err.endswith("error: no-such.png cannot be read: No such file or directory\n")
    assert said.out == ""
