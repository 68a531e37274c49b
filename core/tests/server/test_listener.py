"""The socket that a server is bound to: small answers leave at once, also where a front end gets it as a descriptor."""

from __future__ import annotations

import asyncio
import os
import socket

import pytest

from inset.config import ServerConfig
from inset.server.listener import bind

LIMIT_SECONDS = 30.0


async def _sends_at_once(bound: socket.socket) -> bool:
    """Returns whether a server on a socket sends small pieces without waiting until the client has acknowledged the last one."""
    found: asyncio.Future[int] = asyncio.get_running_loop().create_future()

    def on_connection(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        found.set_result(writer.get_extra_info("socket").getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY))
        writer.close()

    async with await asyncio.start_server(on_connection, sock=bound):
        _, writer = await asyncio.open_connection(*bound.getsockname()[:2])
        try:
            return bool(await asyncio.wait_for(found, LIMIT_SECONDS))
        finally:
            writer.close()


@pytest.mark.parametrize("is_inherited", [False, True])
def test_small_answers_do_not_wait_for_an_acknowledgement(is_inherited: bool) -> None:
    bound = bind(ServerConfig(host="127.0.0.1", port=0))
    if is_inherited:
        with bound:
            bound = socket.socket(fileno=os.dup(bound.fileno()))
    with bound:
        assert asyncio.run(_sends_at_once(bound))
