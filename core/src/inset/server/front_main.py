"""One of several front ends: ``python -m inset.server.front_main``, started by `inset.server.fronts`."""

from __future__ import annotations

import os
import signal
import socket
import sys
import threading
from functools import partial
from pathlib import Path
from typing import Any, BinaryIO

import msgspec

from inset.config import read_configs
from inset.engine.build import build_front
from inset.engine.log import configure_log
from inset.engine.process.parent import die_with_parent
from inset.errors import InsetError
from inset.server.app import create_app
from inset.server.fronts import READY
from inset.server.listener import run_app

__all__ = ["main", "take_standard_output"]


def main() -> int:
    """Serves on the socket that it was given; reads how from the first line of standard input."""
    die_with_parent()
    parent = take_standard_output()
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C reaches the whole group; the parent asks for the end in its own words
    start: dict[str, Any] = msgspec.json.decode(sys.stdin.buffer.readline())
    configure_log(start["log_level"])
    configs = read_configs(start["options"], environ={})
    threading.Thread(target=_stop_when_input_ends, name="inset-parent-watch", daemon=True).start()
    try:
        engine = build_front(configs, Path(start["folder"]), front_id=start["front_id"], num_fronts=configs.server.api_server_count)
    except InsetError as error:
        _tell(parent, msgspec.json.encode(error.message) + b"\n")
        return 1
    app = create_app(engine, configs, front_id=start["front_id"], is_restart=start["is_restart"])
    with socket.socket(fileno=start["descriptor"]) as bound:
        return 0 if run_app(app, bound, configs.server, on_ready=partial(_tell, parent, READY)) else 1


def take_standard_output() -> BinaryIO:
    """Returns the way to the parent, and leads standard output to standard error: what a plugin prints is not what this process says."""
    way = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)
    return way


def _tell(parent: BinaryIO, line: bytes) -> None:
    parent.write(line)
    parent.flush()


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
