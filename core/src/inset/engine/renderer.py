"""From OpenAI messages, or a plain prompt, to token ids with one marker per media item."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

from inset.engine.content_parts import ContentPolicy, MediaPart, Part, TextPart, parse_content
from inset.engine.prompt_parts import PROMPT, MarkingTokenizer
from inset.engine.tool_calls import ArgumentsParser
from inset.errors import InvalidRequestError, PromptTooLongError, TooLargeError
from inset.processing.user_text import EncodedChat, encode_chat

if TYPE_CHECKING:
    from inset.engine.chat_template import ChatTemplate
    from inset.processing.info import ProcessingInfo
    from inset.processing.tokenizer import Tokenizer

__all__ = ["ChatOptions", "RenderedPrompt", "Renderer"]

_NOT_USER_TEXT: Final = ("role", "type")


@dataclass(frozen=True, slots=True, kw_only=True)
class ChatOptions:
    """How a conversation becomes a prompt.

    Attributes:
        add_generation_prompt: End with the beginning of an answer.
        continue_final_message: Let the model go on with the last message instead of answering it.
        tools: Descriptions of tools for the template.
        documents: Documents for the template.
        template_kwargs: Further variables of the template.
    """

    add_generation_prompt: bool = True
    continue_final_message: bool = False
    tools: Sequence[Mapping[str, Any]] | None = None
    documents: Sequence[Mapping[str, Any]] | None = None
    template_kwargs: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class RenderedPrompt:
    """A prompt whose placeholders are not expanded yet.

    Attributes:
        text: The rendered text, or None where the caller gave token ids.
        token_ids: Its token ids, one marker per item.
        media: The items in the order of the messages.
    """

    text: str | None
    token_ids: Sequence[int]
    media: tuple[MediaPart, ...] = ()


@dataclass(frozen=True, slots=True)
class _Message:
    """One message: what the template reads besides its content, and the parts of its content."""

    fields: Mapping[str, Any]
    parts: tuple[Part, ...]
    is_text: bool


class Renderer:
    """Renders conversations for one checkpoint; thread-safe."""

    def __init__(
        self, tokenizer: Tokenizer, info: ProcessingInfo, template: ChatTemplate | None, *, max_model_len: int | None = None
    ) -> None:
        self._tokenizer = tokenizer
        self._info = info
        self._template = template
        self._max_model_len = max_model_len

    def render_chat(self, messages: object, policy: ContentPolicy, options: ChatOptions | None = None) -> RenderedPrompt:
        """Returns the prompt of a conversation; what users typed stays text, in every role.

        Raises:
            InvalidRequestError: The checkpoint has no chat template, a message is malformed, or the template refuses the conversation.
            PromptTooLongError: The text can never fit into the context.
            TooLargeError: There is more text than this caller may send.
        """
        if self._template is None:
            raise InvalidRequestError(
                "This checkpoint has no chat template. Give one with --chat-template, or send a plain prompt.",
                stage="parse",
                parameter="messages",
            )
        try:
            return self._render_chat(self._template, messages, policy, options or ChatOptions())
        except RecursionError as error:
            raise InvalidRequestError("The messages are nested too deeply.", stage="parse", parameter="messages") from error

    def _render_chat(self, template: ChatTemplate, messages: object, policy: ContentPolicy, options: ChatOptions) -> RenderedPrompt:
        parse = ArgumentsParser().parse if template.reads_argument_objects else None
        read = [_read_message(message, policy, index, parse=parse) for index, message in enumerate(_as_list(messages))]
        media = tuple(part for message in read for part in message.parts if isinstance(part, MediaPart))
        num_embeds = _count_prompt_embeds(media)
        if num_embeds and len(read) == len(read[0].parts) == 1:  # they take the place of a whole prompt
            return RenderedPrompt(None, (), media)
        marking = MarkingTokenizer(self._tokenizer)
        around = {"tools": options.tools, "documents": options.documents, "kwargs": options.template_kwargs}
        strings = [*self._strings_of(read), *_strings(around)]
        names = list(_names([[message.fields for message in read], around]))
        _check_length([*strings, *names], policy)
        self._refuse_tokens_in(names)

        def render(user_strings: Sequence[str]) -> str:
            given = iter(user_strings)
            conversation = self._conversation(read, given, marking)
            replaced = _replace_strings(around, given)
            return template.render(
                conversation,
                add_generation_prompt=options.add_generation_prompt,
                continue_final_message=options.continue_final_message,
                tools=replaced["tools"],
                documents=replaced["documents"],
                template_kwargs=replaced["kwargs"],
            )

        if not num_embeds:
            return RenderedPrompt(*encode_chat(self._tokenizer, render, user_strings=strings, check_text=self._check_text), media)
        return RenderedPrompt(*self._encode_marked(render, strings, marking, num_embeds=num_embeds), media)

    def _encode_marked(
        self, render: Callable[[Sequence[str]], str], strings: Sequence[str], marking: MarkingTokenizer, *, num_embeds: int
    ) -> EncodedChat:
        """Returns a conversation with embeddings in it; their token ids are negative, and their markers are not shown."""
        text, token_ids = encode_chat(
            marking, render, user_strings=strings, check_text=lambda text: self._check_text(marking.without_markers(text))
        )
        marking.check(token_ids, num_embeds)
        return EncodedChat(marking.without_markers(text), token_ids)

    def render_text(self, prompt: str, *, add_special_tokens: bool = True) -> RenderedPrompt:
        """Returns a plain prompt; markers typed in it are the places of its items.

        Args:
            prompt: The text.
            add_special_tokens: Put around it what the tokenizer puts there.

        Raises:
            PromptTooLongError: It can never fit into the context.
        """
        self._check_text(prompt)
        return RenderedPrompt(prompt, self._tokenizer.encode(prompt, add_special_tokens=add_special_tokens))

    def _check_text(self, text: str) -> None:
        """Refuses what can never fit before the time is spent on tokenising it."""
        least = self._tokenizer.least_num_tokens(text) if self._max_model_len is not None else 0
        if self._max_model_len is not None and least >= self._max_model_len:
            raise PromptTooLongError(
                f"The text of the prompt has at least {least} tokens, and the context holds {self._max_model_len} together with the "
                "answer. Send less text.",
                stage="parse",
            )

    def _strings_of(self, messages: Sequence[_Message]) -> Iterator[str]:
        for message in messages:
            yield from (part.text for part in message.parts if isinstance(part, TextPart))
            yield from _strings(message.fields)

    def _conversation(self, messages: Sequence[_Message], strings: Iterator[str], marking: MarkingTokenizer) -> list[dict[str, Any]]:
        """Builds what the template reads, with the given strings in place of the user's."""
        counts: dict[str, int] = {}
        conversation = []
        for message in messages:
            parts = [self._template_part(part, strings, counts, marking) for part in message.parts]
            content: Any = parts
            if message.is_text:
                content = parts[0]["text"] if parts else None
            elif self._template is not None and self._template.content_format == "string":
                content = "\n".join(part["text"] if part["type"] == "text" else part["marker"] for part in parts)
            else:
                content = [{key: value for key, value in part.items() if key != "marker"} for part in parts]
            conversation.append({**_replace_strings(message.fields, strings), "content": content})
        return conversation

    def _template_part(self, part: Part, strings: Iterator[str], counts: dict[str, int], marking: MarkingTokenizer) -> dict[str, Any]:
        if isinstance(part, TextPart):
            return {"type": "text", "text": next(strings)}
        index = counts.get(part.modality, 0)
        counts[part.modality] = index + 1
        if part.modality == PROMPT:
            return {"type": "text", "text": marking.marker(index)}
        return {"type": part.modality, "marker": self._info.get_placeholder_text(part.modality, index)}

    def _refuse_tokens_in(self, names: Sequence[str]) -> None:
        """Names of fields cannot be replaced by inert words, so one of the model's tokens in them is refused."""
        added = self._tokenizer.added_tokens
        for name in names:
            token = next((token for token in added if token in name), None)
            if token is not None:
                raise InvalidRequestError(
                    f"The name of a field contains {token!r}, a token of the model's own.", stage="parse", parameter="messages"
                )


def _check_length(texts: Sequence[str], policy: ContentPolicy) -> None:
    most = policy.max_text_characters
    if most is not None and sum(map(len, texts)) > most:
        raise TooLargeError(
            f"The conversation has more than {most} characters of text (--max-request-text-bytes). Send less text.",
            stage="parse",
            parameter="messages",
            code="request_too_large",
        )


def _count_prompt_embeds(media: Sequence[MediaPart]) -> int:
    parts = [part for part in media if part.modality == PROMPT]
    named = next((part for part in parts if part.kind != "embeds"), None)
    if named is not None:
        raise InvalidRequestError(
            "Prompt embeddings are sent each time: a uuid does not stand for them.", stage="parse", parameter=named.parameter
        )
    return len(parts)


def _as_list(messages: object) -> Sequence[object]:
    if not isinstance(messages, Sequence) or isinstance(messages, str | bytes) or not messages:
        raise InvalidRequestError("messages must be a list of at least one message.", stage="parse", parameter="messages")
    return messages


def _read_message(
    message: object, policy: ContentPolicy, index: int, *, parse: Callable[[Mapping[str, Any]], Mapping[str, Any]] | None
) -> _Message:
    parameter = f"messages[{index}]"
    if not isinstance(message, Mapping) or not isinstance(message.get("role"), str) or not message["role"]:
        raise InvalidRequestError("A message must be an object with a role.", stage="parse", parameter=parameter)
    content = message.get("content")
    parts = parse_content(content, policy, parameter=f"{parameter}.content")
    fields = {key: value for key, value in message.items() if key != "content"}
    return _Message(fields if parse is None else parse(fields), tuple(parts), is_text=content is None or isinstance(content, str))


def _strings(value: object) -> Iterator[str]:
    """Yields every string inside a value except roles and types, in the order in which `_replace_strings` replaces them."""
    if isinstance(value, str):
        yield value
    elif isinstance(value, Mapping):
        for key, item in value.items():
            if not (key in _NOT_USER_TEXT and isinstance(item, str)):
                yield from _strings(item)
    elif isinstance(value, list | tuple):
        for item in value:
            yield from _strings(item)


def _replace_strings(value: Any, strings: Iterator[str]) -> Any:
    if isinstance(value, str):
        return next(strings)
    if isinstance(value, Mapping):
        return {
            key: item if key in _NOT_USER_TEXT and isinstance(item, str) else _replace_strings(item, strings) for key, item in value.items()
        }
    if isinstance(value, list | tuple):
        return [_replace_strings(item, strings) for item in value]
    return value


def _names(value: object) -> Iterator[str]:
    if isinstance(value, Mapping):
        for key, item in value.items():
            yield str(key)
            yield str(item) if key in _NOT_USER_TEXT else ""
            yield from _names(item)
    elif isinstance(value, list | tuple):
        for item in value:
            yield from _names(item)
