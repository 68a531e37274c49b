"""What callers hand in: a prompt with its media, or a conversation."""

from __future__ import annotations

import operator
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final, TypeAlias, cast

from inset.engine.content_parts import ContentPolicy
from inset.engine.renderer import ChatOptions
from inset.errors import InvalidRequestError
from inset.identity import JSON
from inset.inputs import MODALITIES
from inset.processing.given_items import split_items

if TYPE_CHECKING:
    import numpy as np

__all__ = ["AnyPrompt", "ChatPrompt", "PromptInput", "RequestOptions", "TextPrompt", "read_prompt", "read_token_ids"]

_LONGEST_SALT: Final = 1024


@dataclass(frozen=True, slots=True, kw_only=True)
class RequestOptions:
    """What goes with a prompt, whatever its form.

    Attributes:
        mm_processor_kwargs: Processor options of this request; they win over the server's.
        media_io_kwargs: Modality -> decode options of this request; they win over the server's.
        cache_salt: Separates tenants in every cache.
        client: Who asks, such as a digest of the API key; uuids are kept apart by it.
        skip_mm_cache: Neither read nor fill the processor cache.
    """

    mm_processor_kwargs: Mapping[str, JSON] = field(default_factory=dict)
    media_io_kwargs: Mapping[str, Mapping[str, JSON]] = field(default_factory=dict)
    cache_salt: str | None = None
    client: str = ""
    skip_mm_cache: bool = False

    def __post_init__(self) -> None:
        """Looks at the salt, which reaches every cache and every process, and at whom the decode options are for.

        Raises:
            InvalidRequestError: The salt is no text that can be encoded, or decode options are for something that is no modality.
        """
        for name, options in self.media_io_kwargs.items():
            if name not in MODALITIES or not isinstance(options, Mapping):
                raise InvalidRequestError(
                    f"media_io_kwargs.{name!s:.40} cannot be: options stand in an object each for {', '.join(MODALITIES)}.",
                    stage="parse",
                    parameter="media_io_kwargs",
                )
        if self.cache_salt is None:
            return
        is_text = isinstance(self.cache_salt, str) and len(self.cache_salt) <= _LONGEST_SALT
        if not is_text or any("\ud800" <= letter <= "\udfff" for letter in self.cache_salt):
            raise InvalidRequestError(
                f"cache_salt must be text of at most {_LONGEST_SALT} characters.", stage="parse", parameter="cache_salt"
            )


@dataclass(frozen=True, slots=True, kw_only=True)
class TextPrompt:
    """A prompt as text, token ids or embeddings, with one marker per item in it.

    Attributes:
        prompt: The text, or None.
        prompt_token_ids: Token ids instead of text, or None.
        prompt_embeds: ``(num_tokens, hidden_size)`` embeddings instead of either, or None.
        multi_modal_data: Modality -> items in the order of their markers: pictures, arrays, encoded bytes, URLs, paths, references, or
            embeddings.
        multi_modal_uuids: Modality -> the caller's own names, None for an item without one.
        options: What else goes with it.
    """

    prompt: str | None = None
    prompt_token_ids: Sequence[int] | None = None
    prompt_embeds: np.ndarray[Any, Any] | None = None
    multi_modal_data: Mapping[str, Sequence[Any]] = field(default_factory=dict)
    multi_modal_uuids: Mapping[str, Sequence[str | None]] = field(default_factory=dict)
    options: RequestOptions = field(default_factory=RequestOptions)


@dataclass(frozen=True, slots=True, kw_only=True)
class ChatPrompt:
    """A conversation in OpenAI's form.

    Attributes:
        messages: The messages.
        policy: Which content parts this caller may send.
        chat: How the conversation becomes a prompt.
        options: What else goes with it.
    """

    messages: Sequence[Mapping[str, Any]]
    policy: ContentPolicy = field(default_factory=ContentPolicy)
    chat: ChatOptions = field(default_factory=ChatOptions)
    options: RequestOptions = field(default_factory=RequestOptions)


PromptInput: TypeAlias = TextPrompt | ChatPrompt

AnyPrompt: TypeAlias = str | Sequence[int] | Sequence[Mapping[str, Any]] | Mapping[str, Any] | PromptInput
"""A text, token ids, messages in OpenAI's form, a mapping with the fields of `TextPrompt`, or one of the two classes."""

_KEYS: Final = (
    "prompt",
    "prompt_token_ids",
    "prompt_embeds",
    "multi_modal_data",
    "multi_modal_uuids",
    "mm_processor_kwargs",
    "media_io_kwargs",
    "cache_salt",
    "skip_mm_cache",
)


def read_prompt(value: AnyPrompt) -> PromptInput:
    """Returns the prompt behind a text, token ids, messages, or a mapping in the form of vLLM's offline API.

    Messages may carry URLs alone; for media in memory make a `ChatPrompt` with a policy that accepts it.

    Raises:
        InvalidRequestError: The mapping has unknown keys, or not exactly one of prompt, prompt_token_ids and prompt_embeds.
    """
    if isinstance(value, TextPrompt | ChatPrompt):
        return value
    if isinstance(value, str):
        return TextPrompt(prompt=value)
    if isinstance(value, list | tuple) and value and isinstance(value[0], Mapping):
        return ChatPrompt(messages=cast("Sequence[Mapping[str, Any]]", value))
    if not isinstance(value, Mapping):
        return TextPrompt(prompt_token_ids=read_token_ids(value))
    unknown = sorted(map(str, set(value) - set(_KEYS)))
    if unknown:
        raise InvalidRequestError(f"A prompt has no {', '.join(map(repr, unknown))}; known are {', '.join(_KEYS)}.", stage="parse")
    given = [key for key in _KEYS[:3] if value.get(key) is not None]
    if len(given) != 1:
        raise InvalidRequestError(f"A prompt needs exactly one of {', '.join(_KEYS[:3])}, not {', '.join(given) or 'none'}.", stage="parse")
    if not isinstance(value.get("prompt"), str | None):
        raise InvalidRequestError("prompt must be text.", stage="parse", parameter="prompt")
    return TextPrompt(
        prompt=value.get("prompt"),
        prompt_token_ids=value.get("prompt_token_ids"),
        prompt_embeds=value.get("prompt_embeds"),
        multi_modal_data={name: split_items(name, items) for name, items in _mapping(value, "multi_modal_data").items()},
        multi_modal_uuids={modality: _as_names(names) for modality, names in _mapping(value, "multi_modal_uuids").items()},
        options=RequestOptions(
            mm_processor_kwargs=_mapping(value, "mm_processor_kwargs"),
            media_io_kwargs=_mapping(value, "media_io_kwargs"),
            cache_salt=value.get("cache_salt"),
            skip_mm_cache=bool(value.get("skip_mm_cache")),
        ),
    )


def read_token_ids(value: object) -> list[int]:
    """Returns token ids as plain numbers, from a list, an array or anything else that yields whole numbers.

    Raises:
        InvalidRequestError: It is something else.
    """
    try:
        return [operator.index(token_id) for token_id in cast("Iterable[Any]", value)]
    except TypeError as error:
        raise InvalidRequestError(
            f"A prompt is text, token ids, messages, or a mapping with one of {', '.join(_KEYS[:3])}; not this {type(value).__name__}.",
            stage="parse",
        ) from error


def _mapping(value: Mapping[str, Any], name: str) -> Mapping[str, Any]:
    given = value.get(name) or {}
    if not isinstance(given, Mapping):
        raise InvalidRequestError(f"{name} must be a mapping, not a {type(given).__name__}.", stage="parse", parameter=name)
    return given


def _as_names(value: Any) -> Sequence[Any]:
    """One name may stand without a list around it."""
    return value if isinstance(value, list | tuple) else [value]
