"""One of several front ends: ``python -m inset.server.front_main``, started by `inset.server.fronts`."""

from __future__ import annotations

import os
import signal
import socket
import sys
import threading
from pathlib import Path
from typing import Any

import msgspec

from inset.config import read_configs
from inset.engine.build import build_front
from inset.engine.log import configure_log
from inset.engine.process.parent import die_with_parent
from inset.errors import InsetError
from inset.server.app import create_app
from inset.server.listener import run_app

__all__ = ["READY", "main"]

READY = b"ready\n"
"""What a front end writes to standard output once it accepts connections."""


def main() -> int:
    """Serves on the socket that it was given; reads how from the first line of standard input."""
    die_with_parent()
    start: dict[str, Any] = msgspec.json.decode(sys.stdin.buffer.readline())
    configure_log(start["log_level"])
    configs = read_configs(start["options"], environ={})
    threading.Thread(target=_stop_when_input_ends, name="inset-parent-watch", daemon=True).start()
    try:
        engine = build_front(configs, Path(start["folder"]), front_id=start["front_id"], num_fronts=configs.server.api_server_count)
    except InsetError as error:
        sys.stderr.write(f"inset: {error}\n")
        return 1
    with socket.socket(fileno=start["descriptor"]) as bound:
        return 0 if run_app(create_app(engine, configs, front_id=start["front_id"]), bound, configs.server, on_ready=_tell_ready) else 1


def _tell_ready() -> None:
    sys.stdout.buffer.write(READY)
    sys.stdout.buffer.flush()


def _stop_when_input_ends() -> None:
    """The parent holds the other end of standard input; it is closed when the parent ends, however it ends."""
    while sys.stdin.buffer.read(4096):
        pass
    os.kill(os.getpid(), signal.SIGTERM)


if __name__ == "__main__":
    status = main()
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(status)  # a thread that waits for standard input would hold up an ordinary exit
