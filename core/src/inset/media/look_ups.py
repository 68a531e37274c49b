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
MAX_LOOK_UPS_PER_DOMAIN: Final = 4


def look_up(host: str, port: int) -> list[AddressInfo]:
    """Asks the system's resolver."""
    return list(socket.getaddrinfo(host, port, type=socket.SOCK_STREAM))


class LookUps:
    """Asks a blocking resolver in threads of its own; lives on one event loop.

    Nothing can end a look-up that hangs, also when nobody waits for it any more. So hosts whose last two labels are equal, which one party
    may have made up, have few threads together; and those who ask for the same host at the same time share one answer.
    """

    def __init__(self, resolve: Resolve = look_up) -> None:
        self._resolve = resolve
        self._threads = ThreadPoolExecutor(MAX_LOOK_UPS, thread_name_prefix="inset-dns")
        self._flights: SingleFlight[list[AddressInfo]] = SingleFlight()
        self._slots: WeakValueDictionary[str, asyncio.Semaphore] = WeakValueDictionary()

    async def find(self, host: str, port: int) -> list[AddressInfo]:
        """Returns all addresses of a host.

        Raises:
            OSError: There are none.
        """
        return await self._flights.join((host, port), lambda _: self._ask(host, port))

    def close(self) -> None:
        """Gives the threads up; a look-up that runs ends by itself."""
        self._threads.shutdown(wait=False, cancel_futures=True)

    async def _ask(self, host: str, port: int) -> list[AddressInfo]:
        slots = self._slots.setdefault(".".join(host.split(".")[-2:]), asyncio.Semaphore(MAX_LOOK_UPS_PER_DOMAIN))
        loop = asyncio.get_running_loop()
        await slots.acquire()

        def give_back(_: Future[list[AddressInfo]]) -> None:
            with suppress(RuntimeError):  # the loop is closed
                loop.call_soon_threadsafe(slots.release)

        try:
            answer = self._threads.submit(self._resolve, host, port)
        except BaseException:
            slots.release()
            raise
        answer.add_done_callback(give_back)  # when the thread is free, and not already when nobody waits any more
        return await asyncio.wrap_future(answer)
