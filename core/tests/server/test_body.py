from __future__ import annotations

import json
from typing import Any

import pytest

from inset.errors import InvalidRequestError, OverloadedError, TooLargeError
from inset.server.body import LONG_STRING_BYTES, MAX_DEPTH, BodyReader, parse_json

LONG = "A" * (LONG_STRING_BYTES + 10)


@pytest.mark.parametrize(
    "value",
    [
        {"a": LONG},
        {"a": [LONG, {"b": f"data:image/png;base64,{LONG}"}], "c": "short"},
        {LONG: 1},
        {"escaped": LONG + "\\\n\t", "then": LONG},
        {"quoted": '"' * LONG_STRING_BYTES, "then": LONG},
        {"ends with a back-slash": LONG + "\\", "then": LONG},
        {"unicode": "é" * LONG_STRING_BYTES, "emoji": "😀" * LONG_STRING_BYTES},
        {"marker": "inset-long-string-0", "long": LONG},
        [LONG] * 5,
        LONG,
        {"numbers": list(range(20_000))},
        json.loads("[" * MAX_DEPTH + "]" * MAX_DEPTH),
        {"text": "{[" * 300_000},
        {},
    ],
    ids=repr,
)
@pytest.mark.parametrize("ensure_ascii", [True, False])
def test_long_strings_change_nothing_in_the_value(value: Any, ensure_ascii: bool) -> None:
    assert parse_json(json.dumps(value, ensure_ascii=ensure_ascii).encode()) == value


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"{",
        b'{"a": }',
        b'{"a": "' + LONG.encode(),
        b'{"a": "' + LONG.encode() + b'"',
        b'{"a": "' + LONG.encode() + b'\xff"}',
        b'{"a": "\xff"}',
        b'"' + b"\\" * (2 * LONG_STRING_BYTES + 1) + b'"',
        b"[" * 100_000,
        b"[" * (MAX_DEPTH + 1) + b"]" * (MAX_DEPTH + 1),
        b'{"a":' * MAX_DEPTH + b"[]" + b"}" * MAX_DEPTH,
        b'["' + LONG.encode() + b'",' + b"[" * MAX_DEPTH + b"]" * MAX_DEPTH + b"]",
        b'{"a": 1} trailing',
        b"NaN",
    ],
    ids=lambda body: repr(body[:20]),
)
def test_what_is_not_json_is_refused(body: bytes) -> None:
    with pytest.raises(InvalidRequestError, match="not JSON") as caught:
        parse_json(body)
    assert caught.value.code == "invalid_json"
    assert len(caught.value.message) < 300


@pytest.mark.parametrize("body", [b"[" + b"[]," * 100_001 + b"1]", b'{"a":[' + b"{}," * 2_000_000 + b"1]}"], ids=len)
def test_body_of_countless_values_is_too_large(body: bytes) -> None:
    with pytest.raises(TooLargeError, match="lists and objects"):
        parse_json(body)


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
    return await reader.read(request)  # type: ignore[arg-type]


def run(coroutine: Any) -> Any:
    import asyncio

    return asyncio.run(coroutine)


def test_body_counts_as_held_until_it_is_released() -> None:
    reader = BodyReader(100, 100)
    held = run(read(reader, _Request(b'{"a":', b"1}")))
    assert held.value == {"a": 1}
    assert reader.num_bytes_held == 7
    held.release()
    held.release()
    assert reader.num_bytes_held == 0
    assert held.value is None


def test_body_that_says_it_is_too_large_is_not_read() -> None:
    request = _Request(b"x" * 101, stated=101)
    with pytest.raises(TooLargeError, match="--max-request-body-bytes"):
        run(read(BodyReader(100, 1000), request))
    assert request.num_read == 0


def test_body_that_grows_too_large_is_not_read_to_its_end() -> None:
    request = _Request(*[b"x" * 60] * 5)
    reader = BodyReader(100, 1000)
    with pytest.raises(TooLargeError):
        run(read(reader, request))
    assert request.num_read == 2
    assert reader.num_bytes_held == 0


def test_bodies_of_all_requests_together_are_bounded() -> None:
    reader = BodyReader(100, 150)
    first = run(read(reader, _Request(b'"' + b"x" * 98 + b'"')))
    with pytest.raises(OverloadedError):
        run(read(reader, _Request(b'"' + b"x" * 98 + b'"')))
    assert reader.num_bytes_held == 100
    first.release()
    run(read(reader, _Request(b'"' + b"x" * 98 + b'"'))).release()
    assert reader.num_bytes_held == 0


def test_broken_body_is_not_held() -> None:
    reader = BodyReader(100, 100)
    with pytest.raises(InvalidRequestError):
        run(read(reader, _Request(b"{")))
    assert reader.num_bytes_held == 0
