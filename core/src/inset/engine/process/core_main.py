"""The engine core's process: ``python -m inset.engine.process.core_main``, started by `EngineProcess`."""

from __future__ import annotations

import logging
import os
import shutil
import signal
import sys
import threading
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import msgspec

from inset.config import Configs, read_configs
from inset.engine.build import find_checkpoint, load_model_setup
from inset.engine.limits import EngineLimits
from inset.engine.log import configure_log
from inset.engine.process.control import REFUSAL, Hello
from inset.engine.process.core_server import CoreServer
from inset.engine.process.parent import die_with_parent
from inset.errors import ConfigError, InsetError
from inset.plugins import PluginHost

if TYPE_CHECKING:
    from inset.cache.base import ProcessorCacheEngine
    from inset.cache.values import CacheExport
    from inset.engine.engine_core import EngineCore

__all__ = ["main"]

logger = logging.getLogger(__name__)


class _Assembly:
    """Makes the engine core for the first front end, and holds later ones against it."""

    def __init__(self, configs: Configs) -> None:
        self._configs = configs
        self._host = PluginHost(configs.plugins)
        self._checkpoint = find_checkpoint(configs.model.model, self._host)
        self._first: Hello | None = None
        self._core: EngineCore | None = None

    def admit(self, hello: Hello, export: CacheExport | None) -> None:
        """Takes a front end in.

        Raises:
            ConfigError: It has other plugins or other options than the front ends before it, or the model cannot be served.
        """
        self._host.check_fingerprint(hello.resolved)
        if self._first is None:
            limits = EngineLimits(hello.max_model_len, hello.encoder_compute_budget, hello.encoder_cache_size)
            build_engine_core, _ = load_model_setup()
            cache = self._make_cache(hello.cache_type, export)
            self._core = build_engine_core(self._configs, self._host, self._checkpoint, limits=limits, cache=cache)
            self._first = hello
        elif _options_of(hello) != _options_of(self._first):
            raise ConfigError("This front end was started with other options than the first one.")

    def get_core(self) -> EngineCore:
        """Returns the engine core; there once a front end has been admitted."""
        assert self._core is not None
        return self._core

    def close(self) -> None:
        """Frees the engine core."""
        if self._core is not None:
            self._core.close()

    def _make_cache(self, name: str | None, export: CacheExport | None) -> ProcessorCacheEngine | None:
        if name is None:
            return None
        kind = cast("type[ProcessorCacheEngine]", self._host.registries.processor_caches.load(name, "engine"))
        cache = kind.from_config(self._configs.cache)
        if export is not None:
            cache.attach(export)
        return cache


def _options_of(hello: Hello) -> tuple[Any, ...]:
    return (hello.cache_type, hello.max_model_len, hello.encoder_compute_budget, hello.encoder_cache_size)


def main() -> int:
    """Serves front ends until standard input ends, or until the last one is gone; reads where and how from the input's first line."""
    die_with_parent()
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C reaches the whole group; the front ends drain first
    parent, is_left = os.getppid(), threading.Event()
    start: dict[str, Any] = msgspec.json.decode(sys.stdin.buffer.readline())
    configure_log(start.get("log_level", "WARNING"))
    configs, folder = read_configs(start["options"], environ={}), Path(start["folder"])
    try:
        assembly = _Assembly(configs)
    except InsetError as error:
        (folder / REFUSAL).write_text(error.message, "utf-8")
        return 1
    server = CoreServer(folder, admit=assembly.admit, get_core=assembly.get_core, outlives_fronts=start["outlives_fronts"])
    signal.signal(signal.SIGTERM, signal.SIG_IGN)  # a supervisor may send it to everyone: the front ends drain first
    threading.Thread(target=_stop_when_input_ends, args=(server, is_left), name="inset-parent-watch", daemon=True).start()
    _, use_threads = load_model_setup()
    use_threads(configs.engine.engine_threads)
    try:
        server.serve()
    except Exception:
        logger.exception("A step of the engine core failed")
        return 1
    finally:
        assembly.close()
        if is_left.is_set() or os.getppid() != parent:  # nobody else is left to remove it
            shutil.rmtree(folder, ignore_errors=True)
    return 0


def _stop_when_input_ends(server: CoreServer, is_left: threading.Event) -> None:
    """The parent holds the other end of standard input; it is closed when the parent ends, however it ends."""
    while sys.stdin.buffer.read(4096):
        pass
    is_left.set()
    server.stop()


if __name__ == "__main__":
    status = main()
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(status)  # a thread that waits for standard input would hold up an ordinary exit
