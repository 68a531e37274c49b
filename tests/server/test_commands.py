"""`inset chat`, `inset render` and `inset doctor`, as people run them."""

from __future__ import annotations

import base64
import contextlib
import json
import os
import pty
import select
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

Picture = Callable[..., str]


def inset(*words: str, said: str | None = None) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, "-m", "inset", *words], input=said, capture_output=True, text=True, timeout=60, check=False)


@pytest.fixture(scope="module")
def files(picture: Picture, tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    folder = tmp_path_factory.mktemp("pictures")
    paths = [folder / "a.png", folder / "b.png"]
    for number, path in enumerate(paths):
        path.write_bytes(base64.b64decode(picture(number).partition(",")[2]))
    return paths


def test_chat_answers_line_after_line_and_remembers(checkpoint: Path, files: list[Path]) -> None:
    said = f"what?\n\n/help\nand now?\n/add {files[1]}\n/add no.png\n/add\nand this?\n/add {__file__}\nthis?\n/new\nhi\n/quit\nnever read\n"
    ended = inset("chat", str(checkpoint), str(files[0]), "--max-tokens", "4", "--temperature", "0", "--system", "Be brief.", said=said)
    assert ended.returncode == 0, ended.stderr
    summaries = [line for line in ended.stderr.splitlines() if line.startswith("[")]
    assert len(summaries) == 4
    assert [line.count("of images") for line in summaries] == [1, 1, 1, 0]
    assert "16 of images" in summaries[0]
    assert "32 of images" in summaries[2]
    tokens = [int(line[1:].split()[0]) for line in summaries]
    assert tokens[0] < tokens[1] < tokens[2] > tokens[3]
    assert "image 2: The bytes are not an image" in ended.stderr
    assert "There is no file 'no.png'.\ninset: There is no file ''.\nLooking at" in ended.stderr
    assert ended.stderr.count("Type a question") == 2


@pytest.mark.parametrize("command", ["chat", "render"])
def test_file_that_is_missing_is_told_before_anything_is_loaded(command: str) -> None:
    ended = inset(command, "no-such-model", "missing.png")
    assert (ended.returncode, ended.stderr) == (1, "inset: There is no file 'missing.png'.\n")


def test_chat_ends_with_its_input(checkpoint: Path) -> None:
    assert inset("chat", str(checkpoint), said="").returncode == 0


class Terminal:
    """A command in a terminal, where Ctrl-C has its meaning, also if these tests were started in the background, where it has none."""

    PROGRAM = """
import signal, sys
signal.signal(signal.SIGINT, signal.default_int_handler)
from inset.cli import main
sys.exit(main())
"""

    def __init__(self, *words: str) -> None:
        self._fd, far_end = pty.openpty()
        self.process = subprocess.Popen([sys.executable, "-c", self.PROGRAM, *words], stdin=far_end, stdout=far_end, stderr=far_end)
        os.close(far_end)
        self._unread = ""

    def wait_for(self, text: str) -> None:
        while text not in self._unread:
            assert select.select([self._fd], [], [], 60)[0], self._unread
            self._unread += os.read(self._fd, 1 << 16).decode()
        self._unread = self._unread.partition(text)[2]

    def type(self, text: str) -> None:
        os.write(self._fd, text.encode())

    def close(self) -> None:
        self.process.kill()
        self.process.wait()
        os.close(self._fd)


def test_ctrl_c_stops_an_answer_and_ends_at_the_prompt(checkpoint: Path, files: list[Path]) -> None:
    with contextlib.closing(Terminal("chat", str(checkpoint), "--max-tokens", "3000", "--temperature", "0")) as terminal:
        terminal.wait_for("> ")
        terminal.type(f"/add {files[0]}\nwhat?\n")
        terminal.wait_for("Looking at")
        terminal.process.send_signal(signal.SIGINT)
        terminal.wait_for("Stopped")
        terminal.wait_for("> ")
        terminal.process.send_signal(signal.SIGINT)
        assert terminal.process.wait(60) == 130


def test_render_shows_the_places_as_text_and_as_json(checkpoint: Path, files: list[Path]) -> None:
    words = ["render", str(checkpoint), *map(str, files), "--text", "which?"]
    shown = inset(*words).stdout.splitlines()
    assert shown[1].startswith("image 0: positions 6 to 21, 16 embeds  grid 1x4x4  ")
    assert shown[2].startswith("image 1: positions 23 to 38, 16 embeds")
    plan: dict[str, Any] = json.loads(inset(*words, "--json").stdout)
    assert [item["placeholder"]["offset"] for item in plan["items"]] == [6, 23]
    assert f"{len(plan['prompt_token_ids'])} tokens of 4096" == shown[0]


def test_doctor_looks_over_the_installation(checkpoint: Path) -> None:
    ended = inset("doctor", "--json")
    findings = {finding["subject"]: finding for finding in json.loads(ended.stdout)}
    assert {"inset", "libraries", "inset[engine]", "inset[server]", "machine", "open files", "shared memory", "plugin inset"} <= set(
        findings
    )
    assert ended.returncode == any(finding["verdict"] == "fault" for finding in findings.values())
    assert findings["plugin inset"]["verdict"] == "ok"
    assert "FAIL" not in inset("doctor", "--plugin", "llava").stdout


def test_doctor_asks_a_running_server(server: Any, make_server: Any) -> None:
    ended = inset("doctor", "--plugin", "", "--url", server.url)
    assert ended.returncode == 0, ended.stdout
    assert [line.split()[:3] for line in ended.stdout.splitlines()[-4:]] == [
        ["ok", "server", s] for s in ("health", "models", "text", "picture")
    ]
    locked = make_server(max_request_body_bytes=200_000, api_key=("first", "second"), allowed_origins=("https://good.example",))
    assert "status 401" in inset("doctor", "--plugin", "", "--url", locked.url).stdout
    assert inset("doctor", "--plugin", "", "--url", locked.url, "--api-key", "second").returncode == 0
    gone = inset("doctor", "--plugin", "", "--url", "http://127.0.0.1:1")
    assert gone.returncode == 1
    assert "no answer: [Errno" in gone.stdout


def test_serve_says_in_one_line_what_cannot_be_served(tmp_path: Path, checkpoint: Path) -> None:
    for words, said in (
        ([tmp_path], "is not a checkpoint folder: it has no config.json."),
        (["no-such-model"], "is neither a folder nor"),
        ([checkpoint, "--dtype", "int3"], "dtype"),
        ([checkpoint, "--dtype", "int3", "--api-server-count", "2"], "dtype"),
    ):
        ended = inset("serve", *map(str, words), "--port", "0", "--log-level", "WARNING")
        assert ended.returncode == 1
        [line] = ended.stderr.splitlines()
        assert line.startswith("inset: ")
        assert said in line
