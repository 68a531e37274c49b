"""`inset serve`: the processes of a server, from start to drain."""

from __future__ import annotations

import contextlib
import logging
import signal
import sys
from collections.abc import Iterator
from typing import TYPE_CHECKING, NoReturn

from inset.engine.process.launcher import EngineProcess
from inset.errors import MissingExtraError
from inset.server.log import configure_log

if TYPE_CHECKING:
    import socket
    from types import FrameType

    from inset.config import Configs
    from inset.engine.async_llm import AsyncLLM

__all__ = ["serve"]

logger = logging.getLogger(__name__)


class _Terminated(BaseException):
    """SIGTERM arrived before there was anything to drain."""


def serve(configs: Configs, *, log_level: str = "INFO") -> int:
    """Serves until SIGTERM or Ctrl-C, and returns the exit status.

    The engine core loads its model in a process of its own while this one imports what it needs.

    Raises:
        ConfigError: An option or the checkpoint cannot be served, or the port is taken.
        PluginError: A plugin that was named cannot be loaded.
        EngineDeadError: The engine core ended before it was ready.
        MissingExtraError: ``inset[server]`` is not installed.
    """
    configure_log(log_level)
    signal.signal(signal.SIGTERM, _raise_terminated)
    try:
        if configs.server.in_process:
            return _serve_in_process(configs)
        with EngineProcess(configs, log_level=log_level) as engine:
            return _serve_front(configs, engine)
    except _Terminated:
        return 0


def _raise_terminated(number: int, frame: FrameType | None) -> NoReturn:
    raise _Terminated


def _serve_in_process(configs: Configs) -> int:
    with _bound(configs) as bound:
        from inset.engine.build import build_engine_from

        return _run(configs, build_engine_from(configs), bound)


def _serve_front(configs: Configs, engine: EngineProcess) -> int:
    with _bound(configs) as bound:
        from inset.engine.build import build_front

        engine.wait_until_listening()
        return _run(configs, build_front(configs, engine.folder, front_id="front-0"), bound)


@contextlib.contextmanager
def _bound(configs: Configs) -> Iterator[socket.socket]:
    """Binds the port before the model loads, so that a port that is taken is told at once."""
    try:
        from inset.server.listener import bind
    except ImportError as error:
        raise MissingExtraError(f"Serving needs the extra `inset[server]`: pip install 'inset[server]' ({error}).") from error
    with bind(configs.server) as bound:
        yield bound


def _run(configs: Configs, engine: AsyncLLM, bound: socket.socket) -> int:
    from inset.server.app import create_app
    from inset.server.listener import run_app, url_of

    def announce() -> None:
        sys.stderr.write(f"inset: {app.state.service.model_name} is ready at {url_of(bound)}/v1\n")
        sys.stderr.flush()

    app = create_app(engine, configs)
    return 0 if run_app(app, bound, configs.server, on_ready=announce) else 1
