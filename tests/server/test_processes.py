"""`inset serve` as people run it: real processes that start, drain, and are killed."""

from __future__ import annotations

import json
import os
import re
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import httpx
import psutil
import pytest

from inset.testing.waiting import wait_until

WAIT_SECONDS = 60.0
LONG: dict[str, Any] = {"temperature": 0, "max_tokens": 3000, "ignore_eos": True, "stream": True}


def chat(url: str, **fields: Any) -> httpx.Response:
    body = {"messages": [{"role": "user", "content": "hi"}], "temperature": 0, "max_tokens": 4, "ignore_eos": True, **fields}
    return httpx.post(f"{url}/v1/chat/completions", json=body, timeout=WAIT_SECONDS)


def listens(process: psutil.Process) -> bool:
    return any(connection.status == psutil.CONN_LISTEN for connection in process.net_connections("tcp"))


class Streaming:
    """A long stream, read by a thread of its own."""

    def __init__(self, url: str, **fields: Any) -> None:
        self.events: list[str] = []
        self.is_cut = False
        self._begun = threading.Event()
        self._body = {"messages": [{"role": "user", "content": "tell"}], **LONG, **fields}
        self._thread = threading.Thread(target=self._read, args=(url,), daemon=True)
        self._thread.start()
        assert self._begun.wait(WAIT_SECONDS), "the stream did not begin"

    def _read(self, url: str) -> None:
        try:
            with httpx.stream("POST", f"{url}/v1/chat/completions", json=self._body, timeout=WAIT_SECONDS) as response:
                for line in response.iter_lines():
                    self.events += [line] if line else []
                    if len(self.events) > 3:
                        self._begun.set()
        except (httpx.RemoteProtocolError, httpx.ReadError):
            self.is_cut = True

    def wait(self) -> list[str]:
        self._thread.join(WAIT_SECONDS)
        assert not self._thread.is_alive(), "the stream hangs"
        return self.events


def test_sigterm_lets_running_answers_end_and_leaves_nothing(serve: Callable[..., Any]) -> None:
    server = serve()
    [engine] = server.find("inset.engine.process.core_main")
    folder = next(Path(entry.laddr).parent for entry in engine.net_connections("unix") if entry.laddr.endswith("control.sock"))
    assert chat(server.url).status_code == 200
    running = Streaming(server.url, max_tokens=400)
    assert server.stop() == 0
    assert running.wait()[-1] == "data: [DONE]"
    assert '"finish_reason":"length"' in running.events[-2]
    assert not folder.exists()
    lines = [json.loads(line) for line in server.log.splitlines() if line.startswith("{")]
    assert [line["route"] for line in lines if line["event"] == "request"] == ["/v1/chat/completions"] * 2
    assert "tell" not in server.log


@pytest.mark.parametrize("options", [(), ("--api-server-count", "2")])
def test_sigterm_that_reaches_every_process_cuts_no_answer(serve: Callable[..., Any], options: tuple[str, ...]) -> None:
    server = serve(*options)
    running = Streaming(server.url, max_tokens=400)
    os.killpg(server.process.pid, signal.SIGTERM)
    assert running.wait()[-1] == "data: [DONE]"
    assert server.stop(None) == 0
    assert "engine core has ended" not in server.log


def test_killed_engine_core_ends_what_runs_and_turns_health_bad(serve: Callable[..., Any]) -> None:
    server = serve()
    running = [Streaming(server.url) for _ in range(3)]
    [engine] = server.find("inset.engine.process.core_main")
    engine.kill()
    for stream in running:
        assert any('"code":"engine_dead"' in event for event in stream.wait()[-2:])
    assert httpx.get(f"{server.url}/health").status_code == 503
    refused = chat(server.url)
    assert refused.status_code == 503
    assert refused.headers["retry-after"]
    server.wait_for("engine core has ended")
    assert server.stop() == 0


def test_ctrl_c_ends_several_front_ends_without_a_word(serve: Callable[..., Any]) -> None:
    server = serve("--api-server-count", "2")
    running = Streaming(server.url, max_tokens=200)
    assert server.interrupt() == 0
    assert running.wait()[-1] == "data: [DONE]"
    events = [json.loads(line) for line in server.log.splitlines() if line.startswith("{")]
    assert [event["event"] for event in events if event["level"] in ("warning", "error")] == []
    assert "Traceback" not in server.log


def test_interrupt_that_reaches_a_front_end_behind_its_parents_word_cuts_no_answer(serve: Callable[..., Any]) -> None:
    server = serve("--api-server-count", "2")
    fronts = server.find("inset.server.front_main")
    running = Streaming(server.url, max_tokens=800)
    server.process.send_signal(signal.SIGINT)
    wait_until(lambda: not any(map(listens, fronts)))
    for front in fronts:
        front.send_signal(signal.SIGINT)
    assert running.wait()[-1] == "data: [DONE]"
    assert server.stop(None) == 0
    assert "Traceback" not in server.log


def test_second_ctrl_c_ends_at_once_and_closes_the_app(serve: Callable[..., Any]) -> None:
    server = serve("--in-process")
    running = Streaming(server.url, max_tokens=3000)
    server.process.send_signal(signal.SIGINT)
    wait_until(lambda: not listens(psutil.Process(server.process.pid)))
    assert server.stop(signal.SIGINT) == 0
    running.wait()
    assert "Traceback" not in server.log


def test_engine_core_that_hangs_turns_health_bad_until_it_goes_on(serve: Callable[..., Any]) -> None:
    server = serve("--engine-silence-seconds", "4", "--request-timeout-seconds", "8")
    [engine] = server.find("inset.engine.process.core_main")
    engine.suspend()
    wait_until(lambda: httpx.get(f"{server.url}/health").status_code == 503)
    assert "no sign of life" in httpx.get(f"{server.url}/health").text
    assert '"code":"request_timeout"' in chat(server.url).text
    engine.resume()
    wait_until(lambda: httpx.get(f"{server.url}/health").status_code == 200)
    assert chat(server.url).status_code == 200
    assert server.stop(signal.SIGINT) == 0


def test_server_in_one_process_has_no_children(serve: Callable[..., Any]) -> None:
    server = serve("--in-process", "--no-enable-prefix-caching")
    assert server.family() == []
    assert chat(server.url).status_code == 200
    assert server.stop() == 0


def test_several_front_ends_share_a_port_and_outlive_one_another(serve: Callable[..., Any]) -> None:
    server = serve("--api-server-count", "2")
    fronts = server.find("inset.server.front_main")
    assert len(fronts) == 2
    answers = {chat(server.url).json()["choices"][0]["message"]["content"] for _ in range(6)}
    assert len(answers) == 1
    counted = 'inset_requests_total{route="/v1/chat/completions",status="200"} 6.0'
    wait_until(lambda: counted in httpx.get(f"{server.url}/metrics").text)
    pages = [httpx.get(f"{server.url}/metrics").text for _ in range(6)]
    assert all(counted in page for page in pages)
    assert all('inset_mm_cache_items{front_end="front-' in page for page in pages)
    running = [Streaming(server.url, max_tokens=1500) for _ in range(6)]
    fronts[0].kill()
    server.wait_for("front end .* has ended with status -9; 1 are left")
    ends = [(stream.wait()[-1], stream.is_cut) for stream in running]
    assert all(is_cut or last == "data: [DONE]" for last, is_cut in ends)
    wait_until(
        lambda: chat(server.url).status_code == 200 and "\ninset_engine_requests_running 0.0" in httpx.get(f"{server.url}/metrics").text
    )
    server.wait_for("front end .* has taken its place")
    assert {front.pid for front in server.find("inset.server.front_main")} - {front.pid for front in fronts}
    pages = [httpx.get(f"{server.url}/metrics").text for _ in range(12)]
    assert all("inset_front_end_restarts_total 1.0" in page for page in pages)
    wait_until(lambda: re.search(r'front_end="front-\d\.2"', httpx.get(f"{server.url}/metrics").text) is not None)
    assert {chat(server.url).json()["choices"][0]["message"]["content"] for _ in range(6)} == answers
    everyone = server.family()
    [engine] = server.find("inset.engine.process.core_main")
    running = [Streaming(server.url) for _ in range(3)]
    engine.kill()
    assert all('"code":"engine_dead"' in "".join(stream.wait()[-2:]) for stream in running)
    assert chat(server.url).status_code == 503
    server.process.kill()
    server.stop(signal.SIGKILL)
    _, alive = psutil.wait_procs(everyone, timeout=30)
    assert alive == []


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (["--api-server-count", "2", "--mm-processor-cache-type", "lru"], "--mm-processor-cache-type lru .*--api-server-count"),
        (["--api-server-count", "2", "--mm-processor-cache-type", "shm"], "--mm-processor-cache-type shm .*--api-server-count"),
        (["--api-server-count", "2", "--in-process"], "--in-process"),
        (["--api-server-count", "0"], "--api-server-count"),
        (["--max-num-seqs", "many"], "--max-num-seqs"),
        (["--limit-mm-per-prompt", "4"], "JSON object"),
        (["--plugin", "no-such-plugin"], "no-such-plugin"),
    ],
)
def test_options_that_cannot_be_served_end_the_start(checkpoint: Path, options: list[str], words: str) -> None:
    command = [sys.executable, "-m", "inset", "serve", str(checkpoint), "--port", "0", *options]
    ended = subprocess.run(command, capture_output=True, text=True, timeout=WAIT_SECONDS, check=False)
    assert ended.returncode == 1
    assert re.search(words, ended.stderr)
    assert "Traceback" not in ended.stderr


def test_port_that_is_taken_is_told_before_the_model_loads(checkpoint: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = str(taken.getsockname()[1])
        command = [sys.executable, "-m", "inset", "serve", str(checkpoint), "--port", port]
        ended = subprocess.run(command, capture_output=True, text=True, timeout=WAIT_SECONDS, check=False)
    assert (ended.returncode, "Choose another with --port" in ended.stderr) == (1, True)


def test_help_names_every_option(checkpoint: Path) -> None:
    ended = subprocess.run([sys.executable, "-m", "inset", "serve", "--help"], capture_output=True, text=True, timeout=60, check=True)
    for flag in ("--media-connector", "--limit-mm-per-prompt.image", "--mm-processor-cache-type", "--api-server-count", "--plugin"):
        assert flag in ended.stdout
