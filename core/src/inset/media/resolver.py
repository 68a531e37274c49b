"""Looks names up on threads of their own, for aiohttp."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from aiohttp.abc import AbstractResolver, ResolveResult

__all__ = ["ThreadResolver"]


class ThreadResolver(AbstractResolver):
    """Asks a blocking resolver in a thread pool that belongs to someone else."""

    def __init__(
        self, resolve: Callable[[str, int], list[tuple[int, int, int, str, tuple[Any, ...]]]], threads: ThreadPoolExecutor
    ) -> None:
        self._resolve = resolve
        self._threads = threads

    async def resolve(self, host: str, port: int = 0, family: socket.AddressFamily = socket.AF_UNSPEC) -> list[ResolveResult]:
        """Returns all addresses of a host."""
        found = await asyncio.get_running_loop().run_in_executor(self._threads, self._resolve, host, port)
        return [
            ResolveResult(
                hostname=host, host=address[0], port=port, family=kind, proto=protocol, flags=socket.AI_NUMERICHOST | socket.AI_NUMERICSERV
            )
            for kind, _, protocol, _, address in found
            if kind in (socket.AF_INET, socket.AF_INET6)
        ]

    async def close(self) -> None:
        """Leaves the threads to their owner."""
