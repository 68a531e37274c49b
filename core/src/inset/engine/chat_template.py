"""A checkpoint's chat template, rendered in a sandbox the way transformers renders it."""

from __future__ import annotations

import json
import secrets
from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any, Final, Literal, NoReturn, TypeAlias

import jinja2
from jinja2 import nodes
from jinja2.ext import Extension, loopcontrols
from jinja2.parser import Parser
from jinja2.sandbox import ImmutableSandboxedEnvironment

from inset.errors import ConfigError, InvalidRequestError

__all__ = ["ChatTemplate", "Conversation"]

Conversation: TypeAlias = Sequence[Mapping[str, Any]]
"""Messages as a template reads them: role, content and whatever else the client sent."""

_PROBE: Final = "inset-probe-text"
_REFUSALS: Final = (jinja2.TemplateError, TypeError, ValueError, AttributeError, KeyError)
"""What a template raises that was not made for a conversation."""


class _GenerationTag(Extension):
    """Accepts ``{% generation %} ... {% endgeneration %}``, which marks answers for training, and renders what is inside."""

    tags = {"generation"}  # noqa: RUF012 - the base class declares a plain set

    def parse(self, parser: Parser) -> nodes.Node:
        line = next(parser.stream).lineno
        body = parser.parse_statements(("name:endgeneration",), drop_needle=True)
        return nodes.Scope(body).set_lineno(line)


class ChatTemplate:
    """Renders conversations; one instance serves all threads.

    Source: transformers 5 renders templates with ``trim_blocks``, ``lstrip_blocks``, loop controls, ``raise_exception`` and
    ``strftime_now`` in an immutable sandbox.

    Attributes:
        content_format: The template reads content as a ``list`` of parts, or as one ``string``.
        reads_argument_objects: The template wants the arguments of a tool call as an object, not as JSON text.
    """

    def __init__(self, text: str, *, special_tokens: Mapping[str, str]) -> None:
        environment = ImmutableSandboxedEnvironment(trim_blocks=True, lstrip_blocks=True, extensions=[loopcontrols, _GenerationTag])
        environment.filters["tojson"] = _tojson
        environment.globals["raise_exception"] = _raise_exception
        environment.globals["strftime_now"] = lambda form: datetime.now().astimezone().strftime(form)
        self._special_tokens = dict(special_tokens)
        try:
            self._template = environment.from_string(text)
        except jinja2.TemplateError as error:
            raise ConfigError(f"The chat template cannot be read: {error}") from error
        self.content_format = self._detect_content_format()
        self.reads_argument_objects = self._detect_argument_objects()

    def _detect_content_format(self) -> Literal["list", "string"]:
        """Finds out by a probe whether the template reads content as a list of parts or as one text."""
        conversation = [{"role": "user", "content": [{"type": "text", "text": _PROBE}]}]
        try:
            rendered = self._render(conversation, {})
        except _REFUSALS:
            return "string"
        is_list = _PROBE in rendered and f"'{_PROBE}'" not in rendered and f'"{_PROBE}"' not in rendered
        return "list" if is_list else "string"

    def _detect_argument_objects(self) -> bool:
        """Finds out by a probe whether the template wants the arguments of a tool call as an object, not as JSON text."""
        content = [{"type": "text", "text": "x"}] if self.content_format == "list" else "x"
        call = {"id": "123456789", "type": "function", "function": {"name": "x", "arguments": {_PROBE: _PROBE}}}
        conversation: Conversation = [{"role": "user", "content": content}, {"role": "assistant", "content": content, "tool_calls": [call]}]
        try:
            rendered = self._render(conversation, {})
        except _REFUSALS:
            return False
        return _PROBE in rendered and f"'{_PROBE}'" not in rendered

    def render(
        self,
        conversation: Conversation,
        *,
        add_generation_prompt: bool = True,
        continue_final_message: bool = False,
        tools: Sequence[Mapping[str, Any]] | None = None,
        documents: Sequence[Mapping[str, Any]] | None = None,
        template_kwargs: Mapping[str, Any] | None = None,
    ) -> str:
        """Returns the prompt text.

        A prompt that goes on with the last message ends with that message's last text, without what the template writes behind it.

        Source: transformers 5 marks the end of the last text in the same way, and keeps its last white space where the template does.

        Raises:
            InvalidRequestError: The template refuses the conversation, with its own words; or there is no text to go on with.
        """
        variables: dict[str, Any] = dict(template_kwargs or {})
        variables["add_generation_prompt"] = add_generation_prompt and not continue_final_message
        variables["tools"] = tools
        variables["documents"] = documents
        mark = f"{secrets.randbits(96)} "  # digits: no filter of a template changes them
        if continue_final_message:
            conversation = _with_end_marked(conversation, mark)
        try:
            rendered = self._render(conversation, variables)
        except _REFUSALS as error:
            raise InvalidRequestError(
                f"The chat template refuses this conversation: {error}", stage="parse", parameter="messages"
            ) from error
        return _cut_at(mark, rendered) if continue_final_message else rendered

    def _render(self, conversation: Conversation, variables: Mapping[str, Any]) -> str:
        return self._template.render(messages=conversation, **{**self._special_tokens, **variables})


def _with_end_marked(conversation: Conversation, mark: str) -> Conversation:
    """Returns the conversation with a mark behind its last text."""
    *before, last = conversation
    content = last.get("content")
    if isinstance(content, str) and content.strip():
        return [*before, {**last, "content": content + mark}]
    if isinstance(content, list) and content and content[-1].get("type") == "text" and content[-1]["text"].strip():
        *parts, part = content
        return [*before, {**last, "content": [*parts, {**part, "text": part["text"] + mark}]}]
    raise _no_text_to_continue()


def _cut_at(mark: str, rendered: str) -> str:
    """Returns what stands before the mark; where the template strips text, white space before the mark is stripped too."""
    before, found, behind = rendered.rpartition(mark.rstrip())
    if not found:
        raise _no_text_to_continue()
    return before if behind.startswith(" ") else before.rstrip()


def _no_text_to_continue() -> InvalidRequestError:
    return InvalidRequestError(
        "continue_final_message needs a last message that ends with text, and a template that keeps it.",
        stage="parse",
        parameter="messages",
    )


def _tojson(value: object, ensure_ascii: bool = False, indent: int | None = None) -> str:
    return json.dumps(value, ensure_ascii=ensure_ascii, indent=indent)


def _raise_exception(message: str) -> NoReturn:
    raise jinja2.TemplateError(message)
