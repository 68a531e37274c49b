"""`inset serve`: the processes of a server, from start to drain."""

from __future__ import annotations

import contextlib
import logging
import signal
import sys
from collections.abc import Iterator
from typing import TYPE_CHECKING, NoReturn

from inset.engine.log import configure_log
from inset.engine.process.launcher import EngineProcess
from inset.errors import ConfigError, MissingExtraError

if TYPE_CHECKING:
    import socket
    from types import FrameType

    from inset.config import Configs
    from inset.engine.async_llm import AsyncLLM

__all__ = ["serve"]

logger = logging.getLogger(__name__)


class _Terminated(BaseException):
    """SIGTERM or Ctrl-C arrived where no HTTP server of this process drains by itself."""


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
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, _raise_terminated)
    try:
        _check(configs)
        if configs.server.in_process:
            return _serve_in_process(configs)
        with EngineProcess(configs, log_level=log_level, outlives_fronts=configs.server.api_server_count > 1) as engine:
            _check_checkpoint(configs)
            if configs.server.api_server_count > 1:
                return _serve_fronts(configs, engine, log_level)
            return _serve_front(configs, engine)
    except _Terminated:
        return 0


def _check(configs: Configs) -> None:
    """Refuses options that contradict each other, before anything is started."""
    num_fronts = configs.server.api_server_count
    if num_fronts == 1:
        return
    if configs.server.in_process:
        raise ConfigError("--in-process runs one front end: leave it out, or --api-server-count.")
    from inset.engine.cache_types import choose_cache_type
    from inset.plugins import PluginHost

    choose_cache_type(configs.cache, num_fronts=num_fronts, host=PluginHost(configs.plugins))


def _check_checkpoint(configs: Configs) -> None:
    """Refuses what is no checkpoint, while the engine core's process starts: that one can only say so in its log."""
    from inset.engine.build import find_checkpoint
    from inset.plugins import PluginHost

    find_checkpoint(configs.model.model, PluginHost(configs.plugins))


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


def _serve_fronts(configs: Configs, engine: EngineProcess, log_level: str) -> int:
    with _bound(configs) as bound:
        from inset.server.fronts import FrontProcesses

        engine.wait_until_listening()
        with FrontProcesses(configs, engine, bound, log_level=log_level) as fronts:
            fronts.wait_until_ready()
            _announce(configs, bound)
            return fronts.watch()


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
    from inset.server.listener import run_app

    is_well = run_app(create_app(engine, configs), bound, configs.server, on_ready=lambda: _announce(configs, bound))
    return 0 if is_well else 1


def _announce(configs: Configs, bound: socket.socket) -> None:
    from inset.server.listener import url_of

    count = configs.server.api_server_count
    fronts = f" ({count} front ends)" if count > 1 else ""
    sys.stderr.write(f"inset: {configs.model.name_for_clients} is ready at {url_of(bound)}/v1{fronts}\n")
    sys.stderr.flush()
