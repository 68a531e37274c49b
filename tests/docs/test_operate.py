"""The examples of the page on operating a server run, and its names exist."""

from __future__ import annotations

import base64
import os
import re
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from inset.config import Configs
from inset.options import iter_options
from inset.server.app import ROUTES
from inset.server.error_map import ERROR_TYPES
from inset.server.protocol import ChatRequest
from inset.testing.sample_images import encode_image, make_pixels
from inset.testing.tiny_checkpoints import build_tiny_llava

DOCS = Path(__file__).parents[2] / "docs"
PAGE = (DOCS / "how-to" / "operate.md").read_text("utf-8")
REFERENCE = (DOCS / "reference" / "server.md").read_text("utf-8")
EXAMPLES = re.findall(r"```sh\n(.*?)```", PAGE, re.DOTALL)


@pytest.fixture(scope="module")
def url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The URL of a server that runs as the page says."""
    checkpoint = build_tiny_llava(tmp_path_factory.mktemp("models") / "checkpoint")
    command = [sys.executable, "-m", "inset", "serve", str(checkpoint), "--port", "0", "--in-process", "--log-level", "WARNING"]
    process = subprocess.Popen(command, stderr=subprocess.PIPE, text=True)
    assert process.stderr is not None
    try:
        found = next((match for line in process.stderr if (match := re.search(r"is ready at (\S+)/v1", line))), None)
        assert found is not None, "the server did not start"
        yield found[1]
    finally:
        process.send_signal(signal.SIGTERM)
        process.wait(60)
        process.stderr.close()


@pytest.mark.skipif(shutil.which("curl") is None, reason="needs curl")
@pytest.mark.parametrize("example", EXAMPLES, ids=range(len(EXAMPLES)))
def test_example_runs(url: str, example: str) -> None:
    picture = "data:image/png;base64," + base64.b64encode(encode_image(make_pixels(40, 30), "PNG")).decode()
    environment = {**os.environ, "URL": url, "PICTURE": picture}
    ended = subprocess.run(["bash", "-c", example], env=environment, capture_output=True, text=True, timeout=60, check=False)
    assert ended.returncode == 0, ended.stdout + ended.stderr
    assert "object" in ended.stdout or "status" in ended.stdout


def test_official_client_streams_an_answer(url: str, capsys: pytest.CaptureFixture[str]) -> None:
    picture = "data:image/png;base64," + base64.b64encode(encode_image(make_pixels(40, 30), "PNG")).decode()
    [code] = re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)
    code = code.replace("http://127.0.0.1:8000", url).replace("https://example.org/cat.png", picture)
    exec(code.replace("stream=True", "stream=True, max_tokens=4"), {})  # noqa: S102 - our own page
    assert capsys.readouterr().out


def test_options_that_the_page_names_exist() -> None:
    import typing

    flags = {item.flag for config in typing.get_type_hints(Configs).values() for item in iter_options(config)}
    named = set(re.findall(r"`(--[a-z-]+)", PAGE + REFERENCE)) - {"--url"}
    assert named - {flag.replace("plugins", "plugin") for flag in flags} - flags == set()


def test_every_endpoint_is_listed() -> None:
    listed = {
        (method, path.replace("NAME", "{name:path}"))
        for method, path in re.findall(r"`(GET|POST) (/\S+)`", REFERENCE.split("## Fields")[0])
    }
    assert listed == {(route.method, route.path) for route in ROUTES}


def test_every_field_of_a_chat_request_is_listed() -> None:
    table = REFERENCE.split("## Fields of a chat request")[1].split("## Content parts")[0]
    named = {name for row in re.findall(r"^\| (.*?) \|", table, re.MULTILINE) for name in re.findall(r"`(\w+)`", row)}
    assert named == set(ChatRequest.__struct_fields__)


def test_every_status_is_listed_with_its_type() -> None:
    assert dict(re.findall(r"^\| (\d+) \| `(\w+)` \|", REFERENCE, re.MULTILINE)) == {
        str(status): name for status, name in ERROR_TYPES.items() if status != 405
    }
