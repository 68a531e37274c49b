"""A guard that lets a test reach this machine's own loopback interface and nothing else."""

from __future__ import annotations

import errno
import ipaddress
import sys
from collections.abc import Iterator
from contextlib import contextmanager

__all__ = ["NetworkBlockedError", "loopback_only"]

_LOCAL_NAMES = frozenset({"", "localhost", "localhost.localdomain", "ip6-localhost"})


class NetworkBlockedError(OSError):
    """A test tried to leave the machine; an OSError, so that code under test meets it as a connection that fails."""

    def __init__(self, target: str) -> None:
        super().__init__(errno.ENETUNREACH, f"tests may only reach the loopback interface, not {target}")


class _Guard:
    """An audit hook, because it sees every socket of the interpreter whoever opens it; a hook can never be removed, only told to rest."""

    def __init__(self) -> None:
        self.depth = 0
        self._is_installed = False

    def install(self) -> None:
        if not self._is_installed:
            self._is_installed = True
            sys.addaudithook(self._look)

    def _look(self, event: str, arguments: tuple[object, ...]) -> None:
        if not self.depth or not event.startswith("socket."):
            return
        if event in ("socket.connect", "socket.sendto", "socket.sendmsg"):
            address = arguments[1]
            if isinstance(address, tuple) and not _is_loopback(str(address[0])):  # other kinds are unix sockets
                raise NetworkBlockedError(str(address[0]))
        elif event == "socket.getaddrinfo":
            host = _text(arguments[0])
            if host not in _LOCAL_NAMES and not _is_literal(host):
                raise NetworkBlockedError(host)
        elif event in ("socket.gethostbyname", "socket.gethostbyaddr") and not _is_loopback(_text(arguments[0])):
            raise NetworkBlockedError(_text(arguments[0]))


_guard = _Guard()


@contextmanager
def loopback_only() -> Iterator[None]:
    """Refuses every connection and every look-up that leaves the machine, in all threads of this process, until the block ends.

    Child processes are not covered.
    """
    _guard.install()
    _guard.depth += 1
    try:
        yield
    finally:
        _guard.depth -= 1


def _text(value: object) -> str:
    return value.decode("latin-1") if isinstance(value, bytes | bytearray) else "" if value is None else str(value)


def _is_literal(host: str) -> bool:
    try:
        ipaddress.ip_address(host.partition("%")[0])
    except ValueError:
        return False
    return True


def _is_loopback(host: str) -> bool:
    return host in _LOCAL_NAMES or (_is_literal(host) and ipaddress.ip_address(host.partition("%")[0]).is_loopback)
