"""Starts the engine core's process, and ends it."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final, Self

import msgspec

from inset.config import Configs
from inset.engine.process import control
from inset.errors import ConfigError, EngineDeadError, InsetError

__all__ = ["EngineProcess", "options_of"]

_LISTEN_SECONDS: Final = 60.0
_STOP_SECONDS: Final = 10.0
_POLL_SECONDS: Final = 0.02


class EngineProcess:
    """The engine core's process and the private folder of its sockets; whoever makes it closes it.

    The process ends when it is closed, when this process ends, however that happens, and when its last front end is gone.

    Args:
        configs: All options.
        log_level: Of the engine core's own log on standard error.
        outlives_fronts: Go on where no front end is left: one may come again.
    """

    def __init__(self, configs: Configs, *, log_level: str = "WARNING", outlives_fronts: bool = False) -> None:
        self.folder = Path(tempfile.mkdtemp(prefix="inset-"))
        environment = {"GOMP_SPINCOUNT": "0", **os.environ}  # idle torch threads must not spin on cores that front ends need
        self._process = subprocess.Popen([sys.executable, "-m", "inset.engine.process.core_main"], stdin=subprocess.PIPE, env=environment)
        start = {
            "folder": str(self.folder),
            "options": options_of(configs),
            "log_level": log_level,
            "outlives_fronts": outlives_fronts,
        }
        assert self._process.stdin is not None
        try:
            self._process.stdin.write(msgspec.json.encode(start) + b"\n")
            self._process.stdin.flush()
        except BrokenPipeError:
            self.close()
            raise EngineDeadError("The engine core's process ended at once.") from None

    @property
    def pid(self) -> int:
        """Its process id."""
        return self._process.pid

    @property
    def is_running(self) -> bool:
        """It has not ended."""
        return self._process.poll() is None

    def wait_until_listening(self, timeout_seconds: float = _LISTEN_SECONDS) -> None:
        """Waits until front ends can connect.

        Raises:
            ConfigError: It ended because an option or the checkpoint cannot be served; the message is its own.
            EngineDeadError: It ended first, or did not listen in time.
        """
        deadline = time.monotonic() + timeout_seconds
        while not (self.folder / control.CONTROL_SOCKET).exists():
            if not self.is_running:
                raise self._why_ended()
            if time.monotonic() > deadline:
                raise EngineDeadError(f"The engine core's process did not listen within {timeout_seconds:.0f} seconds.")
            time.sleep(_POLL_SECONDS)

    def _why_ended(self) -> InsetError:
        try:
            return ConfigError((self.folder / control.REFUSAL).read_text("utf-8"))
        except OSError:
            return EngineDeadError(f"The engine core's process ended with status {self._process.returncode}; its log says why.")

    def close(self) -> None:
        """Ends the process, gently and then not, and removes the folder; idempotent."""
        if self._process.stdin is not None:
            self._process.stdin.close()
        if self.is_running:
            self._process.terminate()  # ends one that still starts; one that serves goes by its standard input alone
            try:
                self._process.wait(_STOP_SECONDS)
            except subprocess.TimeoutExpired:
                self._process.kill()
                self._process.wait()
        shutil.rmtree(self.folder, ignore_errors=True)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc_info: object) -> None:
        self.close()


def options_of(configs: Configs) -> Mapping[str, Any]:
    """Returns every option that was set, by name, as JSON can carry it."""
    options: dict[str, Any] = {}
    for subject in ("plugins", "media", "model", "cache", "engine", "server"):
        config = getattr(configs, subject)
        for name in config.__dataclass_fields__:
            value = getattr(config, name)
            if value is not None:
                options[name] = str(value) if isinstance(value, Path) else value
    return options
