from __future__ import annotations

import json
import threading
import time
from typing import Any

import pytest

from inset.errors import InvalidRequestError, TooLargeError
from inset.server.json_text import LONG_STRING_BYTES, MAX_DEPTH, JsonLimits, parse_json

LONG = "A" * (70 * 1024)
PIECE = 256 * 1024
LARGE = JsonLimits(max_text_bytes=100_000_000)


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
        {"messages": ["\n" * (PIECE + 1), "x" + "\\" * PIECE, "xyz" + "😀" * PIECE, "ab" + "é\t" * PIECE, '""' * PIECE]},
        [LONG] * 5,
        LONG,
        {"numbers": list(range(20_000))},
        json.loads("[" * MAX_DEPTH + "]" * MAX_DEPTH),
        {"text": "{[,:" * 300_000},
        {},
    ],
    ids=lambda value: repr(value)[:30],
)
@pytest.mark.parametrize("ensure_ascii", [True, False])
def test_long_strings_change_nothing_in_the_value(value: Any, ensure_ascii: bool) -> None:
    assert parse_json(json.dumps(value, ensure_ascii=ensure_ascii).encode(), LARGE) == value


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
        b'"' + b"\\" * (2 * LONG_STRING_BYTES + 1),
        b'["' + b"\\q" * LONG_STRING_BYTES + b'"]',
        b'["' + b"\\n" * PIECE + b"\\ud83d" + b"\\n" * PIECE + b'"]',
        b'["' + b"\\n" * PIECE + b"\xff" + b"\\n" * PIECE + b'"]',
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


@pytest.mark.parametrize(
    "body",
    [
        b"[" + b"1," * 251_000 + b"1]",
        b"[" + b"[]," * 126_000 + b"1]",
        b'{"a":[' + b"{}," * 200_000 + b"1]}",
        b"[" + b'"a",' * 126_000 + b"1]",
        b"{" + b",".join(b'"%d":1' % number for number in range(126_000)) + b"}",
        b"[" * 300_000,
    ],
    ids=lambda body: repr(body[:10]),
)
def test_body_of_countless_values_is_refused_before_it_is_parsed(body: bytes) -> None:
    with pytest.raises(TooLargeError, match="--max-request-values"):
        parse_json(body)


def test_separators_in_strings_are_no_values() -> None:
    value = {"messages": ["[{,", *["[{,:" * 2000] * 10]}
    assert parse_json(json.dumps(value).encode(), JsonLimits(max_values=40)) == value


@pytest.mark.parametrize(
    "value",
    [
        {"messages": ["a" * 4000] * 30},
        {"model": LONG * 2},
        {"metadata": {"x": [LONG] * 2}},
        {"messages": [{"content": LONG * 2}]},
        {"messages": [{"content": [LONG, {"text": LONG}]}]},
        {"input": LONG * 2},
        {LONG * 2: 1},
        [LONG, LONG],
        LONG * 2,
    ],
    ids=lambda value: repr(value)[:20],
)
def test_text_is_bounded_wherever_no_media_can_stand(value: Any) -> None:
    with pytest.raises(TooLargeError, match="--max-request-text-bytes"):
        parse_json(json.dumps(value).encode(), JsonLimits(max_text_bytes=100_000))


@pytest.mark.parametrize("field", ["messages", "input"])
def test_long_strings_where_media_stand_are_no_text(field: str) -> None:
    parts = [
        {"image_url": {"url": LONG}},
        {"image_url": LONG},
        {"input_audio": {"data": LONG}},
        {"image_embeds": {"image_embeds": LONG}},
        "hi",
    ]
    value = {"model": "m", field: [{"role": "user", "content": parts}]}
    assert parse_json(json.dumps(value).encode(), JsonLimits(max_text_bytes=100_000)) == value


@pytest.mark.parametrize(
    "body",
    [b'{"messages":["' + b"\\u00e9\\n" * 1_000_000 + b'"]}', b'{"messages":["' + b'\\"' * 3_000_000 + b'"]}'],
    ids=["escaped letters", "escaped quotes"],
)
def test_other_threads_run_while_a_long_text_is_read(body: bytes) -> None:
    """A text that is read in one piece would let them run once or twice."""
    reading = threading.Thread(target=parse_json, args=(body, LARGE))
    reading.start()
    turns = 0
    while reading.is_alive():
        time.sleep(0.001)
        turns += 1
    assert turns > 5
