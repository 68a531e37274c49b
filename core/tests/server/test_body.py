from __future__ import annotations

import threading
from collections.abc import Iterator
from typing import Any

import pytest

from inset.errors import InvalidRequestError, OverloadedError, TooLargeError
from inset.server.body import BodyReader
from inset.server.json_text import JsonLimits
from inset.server.protocol import DetokenizeRequest

BODY = b'{"tokens":[1,2]}'
PADDED = BODY + b" " * (100 - len(BODY))


class _Request:
    """As much of a request as reading its body needs."""

    def __init__(self, *pieces: bytes, stated: int | None = None) -> None:
        self.headers = {} if stated is None else {"content-length": str(stated)}
        self.num_read = 0
        self._pieces = pieces

    async def stream(self) -> Any:
        for piece in self._pieces:
            self.num_read += 1
            yield piece


async def read(reader: BodyReader, request: _Request) -> Any:
    return await reader.read(request, DetokenizeRequest)  # type: ignore[arg-type]


def run(coroutine: Any) -> Any:
    import asyncio

    return asyncio.run(coroutine)


@pytest.fixture
def make_reader() -> Iterator[Any]:
    made: list[BodyReader] = []

    def make(max_body_bytes: int, max_total_bytes: int) -> BodyReader:
        made.append(BodyReader(max_body_bytes, max_total_bytes, JsonLimits()))
        return made[-1]

    yield make
    for reader in made:
        reader.close()


def test_body_counts_as_held_until_it_is_released(make_reader: Any) -> None:
    reader = make_reader(100, 100)
    held = run(read(reader, _Request(BODY[:5], BODY[5:])))
    assert held.value == DetokenizeRequest(tokens=[1, 2])
    assert reader.num_bytes_held == len(BODY)
    held.release()
    held.release()
    assert reader.num_bytes_held == 0
    assert held.value is None


def test_small_body_waits_for_nothing_else_that_runs_in_threads(make_reader: Any) -> None:
    import asyncio

    is_read = threading.Event()

    async def read_beside_busy_threads() -> Any:
        loop = asyncio.get_running_loop()
        busy = [loop.run_in_executor(None, is_read.wait, 60) for _ in range(64)]
        try:
            held = await asyncio.wait_for(read(make_reader(100, 100), _Request(BODY)), 20)
        finally:
            is_read.set()
        assert all(await asyncio.gather(*busy))
        return held.value

    assert run(read_beside_busy_threads()) == DetokenizeRequest(tokens=[1, 2])


def test_body_that_says_it_is_too_large_is_not_read(make_reader: Any) -> None:
    request = _Request(b"x" * 101, stated=101)
    with pytest.raises(TooLargeError, match="--max-request-body-bytes"):
        run(read(make_reader(100, 1000), request))
    assert request.num_read == 0


def test_body_that_grows_too_large_is_not_read_to_its_end(make_reader: Any) -> None:
    request = _Request(*[b"x" * 60] * 5)
    reader = make_reader(100, 1000)
    with pytest.raises(TooLargeError):
        run(read(reader, request))
    assert request.num_read == 2
    assert reader.num_bytes_held == 0


def test_bodies_of_all_requests_together_are_bounded(make_reader: Any) -> None:
    reader = make_reader(100, 150)
    first = run(read(reader, _Request(PADDED)))
    with pytest.raises(OverloadedError):
        run(read(reader, _Request(PADDED)))
    assert reader.num_bytes_held == 100
    first.release()
    run(read(reader, _Request(PADDED))).release()
    assert reader.num_bytes_held == 0


@pytest.mark.parametrize("body", [b"{", b"[]", b'{"tokens":"x"}', b'{"tokens":[],"x":1}'])
def test_broken_body_is_not_held(make_reader: Any, body: bytes) -> None:
    reader = make_reader(100, 100)
    with pytest.raises(InvalidRequestError):
        run(read(reader, _Request(body)))
    assert reader.num_bytes_held == 0
