"""One HTTP server on a socket that is bound already."""

from __future__ import annotations

import gc
import signal
import socket
from collections.abc import Callable
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Final

import uvicorn

from inset.errors import ConfigError
from inset.server.http_protocol import HttpProtocol

if TYPE_CHECKING:
    from collections.abc import Iterator

    from starlette.types import ASGIApp

    from inset.config import ServerConfig

__all__ = ["KEEP_ALIVE_SECONDS", "bind", "run_app", "url_of"]


def bind(config: ServerConfig) -> socket.socket:
    """Returns a socket bound to the address of the options, not listening yet.

    Raises:
        ConfigError: The address cannot be bound.
    """
    try:
        found = socket.getaddrinfo(config.host, config.port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
        family, kind, protocol, _, address = found[0]
        bound = socket.socket(family, kind, protocol)  # asyncio sends small answers at once only where the protocol is told
    except OSError as error:
        raise ConfigError(f"--host {config.host!r} is not an address of this machine: {error.strerror}.") from error
    try:
        bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        bound.bind(address)
    except OSError as error:
        bound.close()
        raise ConfigError(f"Cannot listen on {config.host} port {config.port}: {error.strerror}. Choose another with --port.") from error
    bound.set_inheritable(True)
    return bound


def url_of(bound: socket.socket) -> str:
    """Returns the URL of a bound socket."""
    host, port = bound.getsockname()[:2]
    return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"


KEEP_ALIVE_SECONDS: Final = 75
"""Clients keep connections for 5 seconds and balancers for 60: whoever closes first must be the one who would send next."""


class _Server(uvicorn.Server):
    def __init__(self, config: uvicorn.Config, on_ready: Callable[[], None]) -> None:
        super().__init__(config)
        self._on_ready = on_ready

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        gc.collect()
        gc.freeze()  # what exists now stays; looking through it again and again would stop every request for a tenth of a second
        self._on_ready()

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """Drains; a second Ctrl-C ends that at once, and the app is closed all the same, which the base class would leave out."""
        await super().shutdown(sockets)
        if self.force_exit:
            await self.lifespan.shutdown()

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Drains on SIGTERM, and on Ctrl-C unless that was ignored; the base class would raise it again before anything else is closed."""
        is_interrupt_ignored = signal.getsignal(signal.SIGINT) is signal.SIG_IGN
        with super().capture_signals():
            if is_interrupt_ignored:
                signal.signal(signal.SIGINT, signal.SIG_IGN)
            yield
            self._captured_signals: list[Any] = []


def run_app(app: ASGIApp, bound: socket.socket, config: ServerConfig, *, on_ready: Callable[[], None]) -> bool:
    """Serves an app until SIGTERM or Ctrl-C, then drains; returns False where it could not start.

    Args:
        app: Its lifespan is run.
        bound: Closed at the end.
        config: The drain time.
        on_ready: Called once connections are accepted.
    """
    options = uvicorn.Config(
        app,
        lifespan="on",
        log_config=None,
        access_log=False,
        server_header=False,
        http=HttpProtocol,
        ws="none",
        timeout_keep_alive=KEEP_ALIVE_SECONDS,
        timeout_graceful_shutdown=max(1, round(config.drain_timeout_seconds)),
    )
    server = _Server(options, on_ready)
    server.run(sockets=[bound])
    return server.started
