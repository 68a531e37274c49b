"""Shows for how long hostile bodies stop a server: ``python -m benchmarks.stalls URL`` or ``... --serve MODEL``.

While each body is sent and handled, ``/health`` is asked again and again on another connection. One JSON line is printed for each body: the
longest that ``/health`` took meanwhile, and the longest that it took just before, when nothing else was going on.
"""

from __future__ import annotations

import argparse
import http.client
import json
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any, Final
from urllib.parse import urlsplit

from benchmarks.serve import LARGE, data_url, served

ROUNDS: Final = 200


def _message(content: bytes) -> bytes:
    return b'{"messages":[{"role":"user","content":' + content + b'}],"max_tokens":1}'


def _picture(form: str) -> bytes:
    return _message(json.dumps([{"type": "image_url", "image_url": {"url": data_url(1, LARGE, form)}}, "what is it?"]).encode())


BODIES: Final[dict[str, Callable[[], bytes]]] = {
    "short_text": lambda: _message(b'"hi"'),
    "12_megapixel_jpeg": lambda: _picture("JPEG"),
    "12_megapixel_png": lambda: _picture("PNG"),
    "240_000_numbers": lambda: _message(b"[" + b"1," * 240_000 + b"1]"),
    "120_000_objects": lambda: _message(b"[" + b"{}," * 120_000 + b"1]"),
    "120_000_strings": lambda: _message(b"[" + b'"a",' * 120_000 + b"1]"),
    "30_million_numbers": lambda: _message(b"[" + b"1," * 30_000_000 + b"1]"),
    "10_million_objects": lambda: _message(b"[" + b"{}," * 10_000_000 + b"1]"),
    "3_mb_of_text": lambda: _message(b'"' + b"words " * 500_000 + b'"'),
    "24_mb_of_escaped_text": lambda: _message(b'"' + b"\\u00e9\\n" * 3_000_000 + b'"'),
    "60_mb_of_text": lambda: _message(b'"' + b"a" * 60_000_000 + b'"'),
    "60_mb_without_an_end": lambda: _message(b'"' + b"a" * 60_000_000),
}


class _Watch:
    """Asks for ``/health`` on a thread of its own, and keeps the longest time that an answer took."""

    def __init__(self, host: str, port: int) -> None:
        self.longest = 0.0
        self._connection = http.client.HTTPConnection(host, port, timeout=600)
        self._is_over = threading.Event()
        self._thread = threading.Thread(target=self._ask, daemon=True)

    def _ask(self) -> None:
        while not self._is_over.wait(0.001):
            self.ask_once()

    def ask_once(self) -> None:
        """Asks once."""
        started = time.perf_counter()
        self._connection.request("GET", "/health")
        self._connection.getresponse().read()
        self.longest = max(self.longest, time.perf_counter() - started)

    def __enter__(self) -> _Watch:
        self._thread.start()
        return self

    def __exit__(self, *exc_info: object) -> None:
        self._is_over.set()
        self._thread.join()
        self._connection.close()


def measure(url: str, names: list[str]) -> Iterator[dict[str, Any]]:
    """Yields the figures of one body after the other."""
    host, port = urlsplit(url).hostname or "127.0.0.1", urlsplit(url).port or 80
    for name in names:
        body = BODIES[name]()
        idle = _Watch(host, port)
        for _ in range(ROUNDS):
            idle.ask_once()
        connection = http.client.HTTPConnection(host, port, timeout=600)
        with _Watch(host, port) as watch:
            connection.request("POST", "/v1/chat/completions", body, {"Content-Type": "application/json"})
            response = connection.getresponse()
            response.read()
        connection.close()
        figures = {"longest_health_ms": 1000 * watch.longest, "idle_ms": 1000 * idle.longest}
        rounded = {key: round(value, 1) for key, value in figures.items()}
        yield {"workload": f"stall_{name}", "bytes": len(body), "status": response.status, **rounded}


def main() -> None:
    """Sends the bodies that were named, or all of them."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("url", nargs="?", help="address of a running server")
    parser.add_argument("--serve", metavar="MODEL", help="start a server of ours for this checkpoint instead")
    parser.add_argument("--body", action="append", choices=list(BODIES), help="only this one; may repeat")
    args = parser.parse_args()
    if (args.url is None) == (args.serve is None):
        parser.error("name either the URL of a server, or a checkpoint with --serve")
    names = args.body or list(BODIES)
    if args.url is not None:
        for line in measure(args.url, names):
            print(json.dumps(line), flush=True)
        return
    with served(args.serve, []) as url:
        for line in measure(url, names):
            print(json.dumps(line), flush=True)


if __name__ == "__main__":
    main()
