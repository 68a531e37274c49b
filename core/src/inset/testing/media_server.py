"""An HTTP server on the loopback interface that can misbehave in every way that a client must survive."""

from __future__ import annotations

import asyncio
import gzip
import threading
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final, NamedTuple, Self

__all__ = ["MediaServer", "Reply", "SeenRequest"]

WAIT_SECONDS: Final = 20.0
_PIECE: Final = b"\0" * 65_536


class SeenRequest(NamedTuple):
    """A request that has arrived.

    Attributes:
        path: With its query.
        headers: Names in lower case.
    """

    path: str
    headers: Mapping[str, str]


@dataclass(frozen=True, slots=True, kw_only=True)
class Reply:
    """What the server does with one request.

    Attributes:
        status: The status line's number.
        body: What follows the headers.
        headers: Besides Content-Length.
        content_length: The header as it is sent, true or not; computed when empty, left out when None, and then the connection's end ends
            the body.
        piece_bytes: The body goes out in pieces of this size; in one when 0.
        pause_seconds: Before each piece but the first.
        gate: Nothing is answered before this event is set.
        is_endless: Zeros follow the body for ever.
        is_stalled: Nothing follows the body, but the connection stays open.
        raw: Sent as it is, instead of all of the above.
    """

    status: int = 200
    body: bytes = b""
    headers: Mapping[str, str] = field(default_factory=dict)
    content_length: str | None = ""
    piece_bytes: int = 0
    pause_seconds: float = 0.0
    gate: threading.Event | None = None
    is_endless: bool = False
    is_stalled: bool = False
    raw: bytes | None = None

    @classmethod
    def redirect(cls, location: str | None, *, status: int = 302) -> Reply:
        """Sends the client elsewhere, or nowhere."""
        return cls(status=status, headers={} if location is None else {"Location": location})

    @classmethod
    def gzipped(cls, body: bytes, *, keep_bytes: int | None = None) -> Reply:
        """Sends a packed body, or only its first bytes."""
        return cls(body=gzip.compress(body)[:keep_bytes], headers={"Content-Encoding": "gzip"})

    @classmethod
    def cut_short(cls, body: bytes, *, num_bytes: int) -> Reply:
        """Announces a whole body and closes the connection after some of it."""
        return cls(body=body[:num_bytes], content_length=str(len(body)))

    @classmethod
    def hang_up(cls) -> Reply:
        """Closes the connection without an answer."""
        return cls(raw=b"")


class MediaServer:
    """Serves scripted replies from a thread of its own; a context manager.

    Attributes:
        requests: What has arrived, in order.
    """

    def __init__(self) -> None:
        self.requests: list[SeenRequest] = []
        self._replies: dict[str, list[Reply]] = {}
        self._answered: Counter[str] = Counter()
        self._changed = threading.Condition()
        self._num_open = 0
        self._loop = asyncio.new_event_loop()
        self._tasks: set[asyncio.Task[None]] = set()
        self._transports: set[asyncio.WriteTransport] = set()
        self._server: asyncio.Server | None = None
        self._thread = threading.Thread(target=self._run, name="inset-media-server", daemon=True)

    @property
    def port(self) -> int:
        """The port it listens on, at 127.0.0.1."""
        assert self._server is not None, "the server is not started"
        return int(self._server.sockets[0].getsockname()[1])

    def serve(self, path: str, *replies: Reply | bytes, host: str = "127.0.0.1") -> str:
        """Answers a path with these replies in turn, the last one again and again; returns its URL."""
        script = [Reply(body=reply) if isinstance(reply, bytes) else reply for reply in replies]
        with self._changed:
            self._replies[path] = script
            self._answered[path] = 0
        return f"http://{host}:{self.port}{path}"

    def count(self, path: str) -> int:
        """Returns how many requests for a path have arrived, whatever their query."""
        with self._changed:
            return sum(request.path.partition("?")[0] == path for request in self.requests)

    def wait_for_requests(self, path: str, num_requests: int = 1) -> None:
        """Blocks until so many requests for a path have arrived."""
        with self._changed:
            arrived = self._changed.wait_for(
                lambda: sum(request.path.partition("?")[0] == path for request in self.requests) >= num_requests, WAIT_SECONDS
            )
        assert arrived, f"{num_requests} requests for {path} did not arrive"

    def wait_until_idle(self) -> None:
        """Blocks until no connection is open."""
        with self._changed:
            assert self._changed.wait_for(lambda: self._num_open == 0, WAIT_SECONDS), f"{self._num_open} connections are still open"

    def __enter__(self) -> Self:
        self._thread.start()
        asyncio.run_coroutine_threadsafe(self._start(), self._loop).result(WAIT_SECONDS)
        return self

    def __exit__(self, *exc_info: object) -> None:
        asyncio.run_coroutine_threadsafe(self._stop(), self._loop).result(WAIT_SECONDS)
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(WAIT_SECONDS)
        self._loop.close()

    def _run(self) -> None:
        asyncio.set_event_loop(self._loop)
        self._loop.run_forever()

    async def _start(self) -> None:
        self._server = await asyncio.start_server(self._connect, "127.0.0.1", 0)

    async def _stop(self) -> None:
        assert self._server is not None
        for listener in self._server.sockets:
            self._loop.remove_reader(listener.fileno())
        # A connection that is being accepted while its server closes is left open by asyncio: wait for those first.
        await asyncio.gather(*asyncio.all_tasks() - self._tasks - {asyncio.current_task()})
        self._server.close()
        for task in self._tasks:
            task.cancel()
        for transport in tuple(self._transports):
            transport.abort()  # nobody takes any more what is still on its way
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await asyncio.sleep(0)  # lets the aborted connections see their end

    def _connect(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        # Noted before the task runs: one that is cancelled before its first step could not close the connection.
        self._transports.add(writer.transport)
        self._note_connection(+1)
        task = self._loop.create_task(self._converse(reader, writer))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _converse(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while await self._answer(reader, writer):
                pass
        except (ConnectionError, asyncio.IncompleteReadError):
            pass  # the client went away
        finally:
            writer.close()
            self._transports.discard(writer.transport)
            self._note_connection(-1)

    def _note_connection(self, change: int) -> None:
        with self._changed:
            self._num_open += change
            self._changed.notify_all()

    async def _answer(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> bool:
        """Reads a request and replies; tells whether the connection stays open."""
        head = await reader.readuntil(b"\r\n\r\n")
        request_line, *lines = head.decode("latin-1").split("\r\n")
        path = request_line.split(" ")[1]
        headers = {name.strip().lower(): value.strip() for name, _, value in (line.partition(":") for line in lines if line)}
        reply = self._choose(SeenRequest(path, headers))
        if reply.gate is not None:
            await asyncio.to_thread(reply.gate.wait, WAIT_SECONDS)
        if reply.raw is not None:
            writer.write(reply.raw)
            await writer.drain()
            return False
        writer.write(_head(reply))
        await self._send_body(reply, reader, writer)
        return reply.content_length == "" and not reply.is_endless

    async def _send_body(self, reply: Reply, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        size = reply.piece_bytes or max(1, len(reply.body))
        for start in range(0, len(reply.body), size):
            if start and reply.pause_seconds:
                await asyncio.sleep(reply.pause_seconds)
            writer.write(reply.body[start : start + size])
            await writer.drain()
        while reply.is_endless:
            writer.write(_PIECE)
            await writer.drain()
        if reply.is_stalled:
            await reader.read()  # ends when the client hangs up

    def _choose(self, request: SeenRequest) -> Reply:
        path = request.path.partition("?")[0]
        with self._changed:
            self.requests.append(request)
            self._changed.notify_all()
            script = self._replies.get(path, [Reply(status=404, body=b"there is nothing here")])
            index = min(self._answered[path], len(script) - 1)
            self._answered[path] += 1
            return script[index]


def _head(reply: Reply) -> bytes:
    headers = dict(reply.headers)
    if reply.content_length == "" and not reply.is_endless:
        if reply.status not in (204, 304):
            headers["Content-Length"] = str(len(reply.body))
    elif reply.content_length:
        headers["Content-Length"] = reply.content_length
    lines = [f"HTTP/1.1 {reply.status} Scripted", *(f"{name}: {value}" for name, value in headers.items())]
    return ("\r\n".join(lines) + "\r\n\r\n").encode("latin-1")
