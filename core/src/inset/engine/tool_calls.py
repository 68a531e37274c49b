"""Earlier calls of tools, in the form in which chat templates read them."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, Final, NoReturn

__all__ = ["ArgumentsParser"]

_MOST_CHARACTERS: Final = 256 * 1024


class ArgumentsParser:
    """Turns the arguments of one conversation's tool calls from JSON text, as OpenAI's clients send them, into objects.

    Text that is no JSON object stays text, and so does what is beyond 256 Ki characters in all: text can hold many more values than its
    client may send.
    """

    def __init__(self) -> None:
        self._num_left = _MOST_CHARACTERS

    def parse(self, fields: Mapping[str, Any]) -> Mapping[str, Any]:
        """Returns the fields of a message, with arguments as objects where they can be."""
        calls = fields.get("tool_calls")
        return {**fields, "tool_calls": [self._parse_call(call) for call in calls]} if isinstance(calls, list) else fields

    def _parse_call(self, call: object) -> object:
        function = call.get("function") if isinstance(call, Mapping) else None
        if not isinstance(call, Mapping) or not isinstance(function, Mapping) or not isinstance(function.get("arguments"), str):
            return call
        return {**call, "function": {**function, "arguments": self._parse_arguments(function["arguments"])}}

    def _parse_arguments(self, text: str) -> object:
        self._num_left -= len(text)
        if self._num_left < 0:
            return text
        try:
            value = json.loads(text, parse_constant=_refuse_constant)
            json.dumps(value, ensure_ascii=False).encode()  # raises for half a character, which is no text
        except ValueError:
            return text
        return value if isinstance(value, dict) else text


def _refuse_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is no JSON.")
