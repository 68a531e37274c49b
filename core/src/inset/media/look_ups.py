"""Looks host names up, so that names which never resolve hold up nobody else."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from typing import Any, Final
from weakref import WeakValueDictionary

from inset.media.single_flight import SingleFlight

__all__ = ["AddressInfo", "LookUps", "Resolve", "look_up"]

AddressInfo = tuple[int, int, int, str, tuple[Any, ...]]
Resolve = Callable[[str, int], list[AddressInfo]]
"""Looks a host up, blocking, in the form of `socket.getaddrinfo`."""

MAX_LOOK_UPS: Final = 64
MAX_LOOK_UPS_OF_KNOWN_HOSTS: Final = 16
MAX_LOOK_UPS_PER_DOMAIN: Final = 4
LOOK_UP_SECONDS: Final = 15.0
_MAX_KNOWN_HOSTS: Final = 4096


def look_up(host: str, port: int) -> list[AddressInfo]:
    """Asks the system's resolver."""
    return list(socket.getaddrinfo(host, port, type=socket.SOCK_STREAM))


class LookUps:
    """Asks a blocking resolver in threads of its own; lives on one event loop.

    Nothing can end a look-up that hangs, also when nobody waits for it any more. So hosts whose last two labels are equal, which one party
    may have made up, have few threads together; hosts whose last look-up gave an answer have other threads than those of which nothing is
    known; and those who ask for the same host at the same time share one answer.
    """

    def __init__(self, resolve: Resolve = look_up, *, timeout_seconds: float = LOOK_UP_SECONDS) -> None:
        self._resolve = resolve
        self._timeout_seconds = timeout_seconds
        self._threads = ThreadPoolExecutor(MAX_LOOK_UPS, thread_name_prefix="inset-dns")
        self._known_threads = ThreadPoolExecutor(MAX_LOOK_UPS_OF_KNOWN_HOSTS, thread_name_prefix="inset-known-dns")
        self._known: dict[str, None] = {}
        self._flights: SingleFlight[list[AddressInfo]] = SingleFlight()
        self._slots: WeakValueDictionary[str, asyncio.Semaphore] = WeakValueDictionary()

    async def find(self, host: str, port: int) -> list[AddressInfo]:
        """Returns all addresses of a host.

        Raises:
            OSError: There are none, or no answer came in time.
        """
        try:
            async with asyncio.timeout(self._timeout_seconds):
                return await self._flights.join((host, port), lambda _: self._ask(host, port))
        except TimeoutError as error:
            raise socket.gaierror(socket.EAI_AGAIN, "no answer in time") from error

    def close(self) -> None:
        """Gives the threads up; a look-up that runs ends by itself."""
        for threads in (self._threads, self._known_threads):
            threads.shutdown(wait=False, cancel_futures=True)

    async def _ask(self, host: str, port: int) -> list[AddressInfo]:
        slots = self._slots.setdefault(".".join(host.split(".")[-2:]), asyncio.Semaphore(MAX_LOOK_UPS_PER_DOMAIN))
        loop = asyncio.get_running_loop()
        await slots.acquire()

        def give_back(_: Future[list[AddressInfo]]) -> None:
            with suppress(RuntimeError):  # the loop is closed
                loop.call_soon_threadsafe(slots.release)

        try:
            answer = self._take_threads(host).submit(self._resolve, host, port)
        except BaseException:
            slots.release()
            raise
        answer.add_done_callback(give_back)  # when the thread is free, and not already when nobody waits any more
        addresses = await asyncio.wrap_future(answer)
        self._note_known(host)
        return addresses

    def _take_threads(self, host: str) -> ThreadPoolExecutor:
        """Returns the threads for a host, which is known again when it has answered."""
        is_known = host in self._known
        self._known.pop(host, None)
        return self._known_threads if is_known else self._threads

    def _note_known(self, host: str) -> None:
        self._known[host] = None
        if len(self._known) > _MAX_KNOWN_HOSTS:
            del self._known[next(iter(self._known))]
