"""Looks names up for aiohttp."""

from __future__ import annotations

import socket

from aiohttp.abc import AbstractResolver, ResolveResult

from inset.media.look_ups import LookUps

__all__ = ["BoundedResolver"]


class BoundedResolver(AbstractResolver):
    """Asks look-ups that belong to someone else."""

    def __init__(self, look_ups: LookUps) -> None:
        self._look_ups = look_ups

    async def resolve(self, host: str, port: int = 0, family: socket.AddressFamily = socket.AF_UNSPEC) -> list[ResolveResult]:
        """Returns all addresses of a host."""
        found = await self._look_ups.find(host, port)
        return [
            ResolveResult(
                hostname=host, host=address[0], port=port, family=kind, proto=protocol, flags=socket.AI_NUMERICHOST | socket.AI_NUMERICSERV
            )
            for kind, _, protocol, _, address in found
            if kind in (socket.AF_INET, socket.AF_INET6)
        ]

    async def close(self) -> None:
        """Leaves the look-ups to their owner."""
