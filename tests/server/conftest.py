"""Servers over tiny checkpoints with random weights, and clients that speak with them."""

from __future__ import annotations

import asyncio
import base64
import io
import os
import re
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import openai
import psutil
import pytest
import torch
import uvicorn
from PIL import Image

from inset.config import Configs, read_configs
from inset.engine.async_llm import AsyncLLM
from inset.engine.build import build_engine_from
from inset.server.app import create_app
from inset.server.http_protocol import HttpProtocol
from inset.server.listener import KEEP_ALIVE_SECONDS
from inset.testing.tiny_checkpoints import build_tiny_llava
from inset.testing.tiny_qwen_vl import build_tiny_qwen_vl

WAIT_SECONDS = 60.0


@pytest.fixture(scope="session", autouse=True)
def _one_thread() -> None:
    torch.set_num_threads(1)


@pytest.fixture(scope="session")
def checkpoint(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build_tiny_llava(tmp_path_factory.mktemp("checkpoints") / "tiny")


@pytest.fixture(scope="session")
def picture() -> Callable[..., str]:
    """Makes the data URL of a picture that differs with its number."""

    def make(number: int, *, size: tuple[int, int] = (80, 60), form: str = "PNG") -> str:
        pixels = np.random.default_rng(number).integers(0, 256, (size[1], size[0], 3), dtype=np.uint8)
        buffer = io.BytesIO()
        Image.fromarray(pixels).save(buffer, form)
        return f"data:image/{form.lower()};base64,{base64.b64encode(buffer.getvalue()).decode()}"

    return make


class RunningServer:
    """The app of an engine in this process, behind a real socket, on a thread of its own."""

    def __init__(self, configs: Configs) -> None:
        self.engine: AsyncLLM = build_engine_from(configs)
        self.app = create_app(self.engine, configs)
        self._socket = socket.create_server(("127.0.0.1", 0))
        self.url = f"http://127.0.0.1:{self._socket.getsockname()[1]}"
        options = uvicorn.Config(
            self.app,
            lifespan="on",
            log_config=None,
            http=HttpProtocol,
            ws="none",
            timeout_keep_alive=KEEP_ALIVE_SECONDS,
            timeout_graceful_shutdown=5,
        )
        self._server = uvicorn.Server(options)
        self.loop: asyncio.AbstractEventLoop | None = None
        self._thread = threading.Thread(target=self._run, name="test-server", daemon=True)
        self._thread.start()

    def _run(self) -> None:
        self._server.run(sockets=[self._socket])

    def client(self, **options: Any) -> openai.OpenAI:
        """Returns an official client that does not try again by itself."""
        return openai.OpenAI(base_url=f"{self.url}/v1", **{"api_key": "none", "max_retries": 0, "timeout": WAIT_SECONDS, **options})

    def close(self) -> None:
        self._server.should_exit = True
        self._thread.join(WAIT_SECONDS)
        assert not self._thread.is_alive(), "the server did not stop"


@pytest.fixture(scope="session")
def make_server(checkpoint: Path) -> Iterator[Callable[..., RunningServer]]:
    """Makes servers, one for each set of options, that are closed when the run ends."""
    made: dict[str, RunningServer] = {}

    def make(**options: Any) -> RunningServer:
        key = repr(sorted(options.items()))
        if key not in made:
            made[key] = RunningServer(read_configs({"model": str(checkpoint), "engine_threads": 1, **options}, environ={}))
        return made[key]

    yield make
    for server in made.values():
        server.close()


@pytest.fixture(scope="session")
def make_qwen_server(make_server: Callable[..., RunningServer], tmp_path_factory: pytest.TempPathFactory) -> Callable[..., RunningServer]:
    """Makes servers over a tiny Qwen2.5-VL."""
    folder = build_tiny_qwen_vl(tmp_path_factory.mktemp("checkpoints") / "tiny-qwen", family="qwen2_5_vl")

    def make(**options: Any) -> RunningServer:
        return make_server(model=str(folder), **options)

    return make


@pytest.fixture(scope="session")
def server(make_server: Callable[..., RunningServer]) -> RunningServer:
    """The server with the default options."""
    return make_server()


@pytest.fixture
def client(server: RunningServer) -> Iterator[openai.OpenAI]:
    with server.client() as made:
        yield made


class ServeProcess:
    """A running `inset serve`, with all that it says."""

    def __init__(self, checkpoint: Path, *options: str) -> None:
        command = [sys.executable, "-m", "inset", "serve", str(checkpoint), "--port", "0", "--engine-threads", "1", *options]
        self.process = subprocess.Popen(command, stderr=subprocess.PIPE, text=True, start_new_session=True)
        self._lines: list[str] = []
        self._changed = threading.Condition()
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()
        try:
            self.url = self.wait_for(r"is ready at (http://\S+)/v1")
        except BaseException:
            self.stop()
            raise

    def _read(self) -> None:
        assert self.process.stderr is not None
        for line in self.process.stderr:
            with self._changed:
                self._lines.append(line)
                self._changed.notify_all()

    @property
    def log(self) -> str:
        with self._changed:
            return "".join(self._lines)

    def wait_for(self, pattern: str) -> str:
        """Waits until a line of the log matches, and returns its first group."""
        with self._changed:
            matched = self._changed.wait_for(lambda: re.search(pattern, "".join(self._lines)), WAIT_SECONDS)
        assert matched, f"{pattern!r} did not come:\n{self.log}"
        return matched[1] if matched.groups() else matched[0]

    def family(self) -> list[psutil.Process]:
        """Returns the processes below this one."""
        return list(psutil.Process(self.process.pid).children(recursive=True))

    def find(self, module: str) -> list[psutil.Process]:
        """Returns those that run a module."""
        return [process for process in self.family() if module in process.cmdline()]

    def interrupt(self) -> int:
        """Does what Ctrl-C does: all processes get the signal."""
        os.killpg(self.process.pid, signal.SIGINT)
        return self.stop(None)

    def stop(self, number: int | None = signal.SIGTERM) -> int:
        if number is not None:
            self.process.send_signal(number)
        status = self.process.wait(WAIT_SECONDS)
        self._reader.join(WAIT_SECONDS)
        assert self.process.stderr is not None
        self.process.stderr.close()
        return status


@pytest.fixture
def serve(checkpoint: Path) -> Iterator[Callable[..., ServeProcess]]:
    """Starts servers; none of their processes may be left when the test ends."""
    made: list[ServeProcess] = []
    families: list[psutil.Process] = []

    def start(*options: str) -> ServeProcess:
        made.append(ServeProcess(checkpoint, *options))
        families.extend(made[-1].family())
        return made[-1]

    yield start
    for server in made:
        if server.process.poll() is None:
            server.stop()
    _, alive = psutil.wait_procs(families, timeout=20)
    assert alive == [], "processes were left behind"
