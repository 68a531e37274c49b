"""Content parts of OpenAI messages: every type that clients send, read into text and media."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, Literal, TypeAlias

from inset.errors import InvalidRequestError

__all__ = ["ContentPolicy", "MediaPart", "Part", "TextPart", "parse_content"]


@dataclass(frozen=True, slots=True)
class TextPart:
    """Text, from the client word for word."""

    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class MediaPart:
    """One media item of a message.

    Attributes:
        modality: ``image``, ``video``, ``audio``, or ``prompt`` for embeddings that stand for text.
        kind: ``url`` (fetched by a connector, data URLs too), ``object`` (handed over in memory), ``embeds`` (finished embeddings),
            or ``uuid`` (named by a uuid alone).
        source: The URL, the object, the embeddings, or None.
        uuid: The client's own name for it, or None.
        detail: ``low``, ``high``, ``auto``, or None.
        parameter: Where it stands, such as ``messages[2].content[1]``.
    """

    modality: str
    kind: Literal["url", "object", "embeds", "uuid"]
    source: Any = None
    uuid: str | None = None
    detail: str | None = None
    parameter: str = ""


Part: TypeAlias = TextPart | MediaPart


@dataclass(frozen=True, slots=True, kw_only=True)
class ContentPolicy:
    """What a caller may send.

    Attributes:
        accept_objects: Pictures, arrays, bytes and file paths in memory: for callers in this process alone.
        accept_mm_embeds: Finished embeddings instead of media.
        accept_prompt_embeds: Finished embeddings instead of text.
        max_text_characters: The longest text of a conversation, in all; None for callers who may send any.
    """

    accept_objects: bool = False
    accept_mm_embeds: bool = False
    accept_prompt_embeds: bool = False
    max_text_characters: int | None = None


_TEXT_KEYS: Final = {
    "text": "text",
    "input_text": "text",
    "output_text": "text",
    "refusal": "refusal",
    "thinking": "thinking",
    "tool_reference": "name",
}
_URL_KEYS: Final = {"image_url": "image", "video_url": "video", "audio_url": "audio"}
_EMBED_KEYS: Final = {"image_embeds": "image", "video_embeds": "video", "audio_embeds": "audio", "prompt_embeds": "prompt"}
_OBJECT_KEYS: Final = {"image_pil": "image", "image": "image", "video": "video", "audio": "audio"}
_OTHER_KEYS: Final = ("input_image", "input_audio", "input_video")
_DETAILS: Final = ("low", "high", "auto")

_KNOWN: Final = (*_TEXT_KEYS, *_URL_KEYS, *_EMBED_KEYS, *_OBJECT_KEYS, *_OTHER_KEYS)


def parse_content(content: object, policy: ContentPolicy, *, parameter: str) -> list[Part]:
    """Returns the parts of one message's content: a text, None, or a list of parts and bare strings.

    Args:
        content: What the client sent.
        policy: What this caller may send.
        parameter: The field, such as ``messages[2].content``.

    Raises:
        InvalidRequestError: A part is of an unknown type, lacks its value, or may not be sent by this caller; its place is named.
    """
    if content is None:
        return []
    if isinstance(content, str):
        return [TextPart(content)]
    if not isinstance(content, Sequence) or isinstance(content, bytes | bytearray):
        raise InvalidRequestError(
            f"Content must be text or a list of parts, not a {type(content).__name__}.", stage="parse", parameter=parameter
        )
    return [_parse_part(part, policy, f"{parameter}[{index}]") for index, part in enumerate(content)]


def _parse_part(part: object, policy: ContentPolicy, parameter: str) -> Part:
    if isinstance(part, str):
        return TextPart(part)
    if not isinstance(part, Mapping):
        raise _refuse(f"A content part must be an object or text, not a {type(part).__name__}.", parameter)
    kind = _type_of(part, parameter)
    if kind in _TEXT_KEYS:
        text = part.get(_TEXT_KEYS[kind])
        if not isinstance(text, str):
            raise _refuse(f"A part of type {kind!r} needs text under {_TEXT_KEYS[kind]!r}.", parameter)
        return TextPart(text)
    for keys, parse in _MEDIA_PARSERS:
        if kind in keys:
            return parse(kind, part, policy, parameter)
    raise _refuse(f"There is no part type {kind[:100]!r}; known ones are {', '.join(sorted(_KNOWN))}.", parameter)


def _type_of(part: Mapping[Any, Any], parameter: str) -> str:
    kind = part.get("type")
    if isinstance(kind, str):
        return kind
    shorthand = [key for key in _KNOWN if key in part]
    if kind is None and len(shorthand) == 1:
        return shorthand[0]
    raise _refuse("A content part needs a type.", parameter)


def _refuse(message: str, parameter: str) -> InvalidRequestError:
    return InvalidRequestError(message, stage="parse", parameter=parameter)


def _uuid_of(part: Mapping[Any, Any], parameter: str) -> str | None:
    uuid = part.get("uuid")
    if uuid is not None and (not isinstance(uuid, str) or not 1 <= len(uuid) <= 256):
        raise _refuse("uuid must be text of 1 to 256 characters.", parameter)
    return uuid


def _by_url(modality: str, url: object, part: Mapping[Any, Any], parameter: str, detail: object = None) -> MediaPart:
    uuid = _uuid_of(part, parameter)
    if detail is not None and detail not in _DETAILS:
        raise _refuse(f"detail must be one of {', '.join(_DETAILS)}, not {str(detail)[:100]!r}.", parameter)
    if url is None and uuid is not None:
        return MediaPart(modality=modality, kind="uuid", uuid=uuid, detail=None if detail is None else str(detail), parameter=parameter)
    if not isinstance(url, str) or not url:
        raise _refuse(f"The {modality} needs a URL, or a uuid of one that was sent before.", parameter)
    return MediaPart(
        modality=modality, kind="url", source=url, uuid=uuid, detail=None if detail is None else str(detail), parameter=parameter
    )


def _parse_url(kind: str, part: Mapping[Any, Any], policy: ContentPolicy, parameter: str) -> MediaPart:
    value = part.get(kind)
    detail = part.get("detail")
    if isinstance(value, Mapping):
        detail = value.get("detail", detail)
        value = value.get("url")
    return _by_url(_URL_KEYS[kind], value, part, parameter, detail)


def _parse_responses_input(kind: str, part: Mapping[Any, Any], policy: ContentPolicy, parameter: str) -> MediaPart:
    if part.get("file_id") is not None:
        raise _refuse("Files are not stored here: send the bytes as a data URL, or a URL, instead of file_id.", parameter)
    modality = kind.removeprefix("input_")
    return _parse_url(f"{modality}_url", part, policy, parameter)


def _parse_input_audio(kind: str, part: Mapping[Any, Any], policy: ContentPolicy, parameter: str) -> MediaPart:
    value = part.get("input_audio")
    if value is None:
        return _by_url("audio", None, part, parameter)
    if not isinstance(value, Mapping) or not isinstance(value.get("data"), str):
        raise _refuse("input_audio needs an object with base64 text under 'data'.", parameter)
    return _by_url("audio", f"data:audio/{value.get('format', 'wav')};base64,{value['data']}", part, parameter)


def _parse_embeds(kind: str, part: Mapping[Any, Any], policy: ContentPolicy, parameter: str) -> MediaPart:
    modality = _EMBED_KEYS[kind]
    accepted, flag = (
        (policy.accept_prompt_embeds, "--enable-prompt-embeds") if modality == "prompt" else (policy.accept_mm_embeds, "--enable-mm-embeds")
    )
    if not accepted:
        raise _refuse(f"Parts of type {kind!r} are not accepted; the operator allows them with {flag}.", parameter)
    uuid = _uuid_of(part, parameter)
    value = part.get("data") if modality == "prompt" and "data" in part else part.get(kind)
    if value is None and uuid is not None:
        return MediaPart(modality=modality, kind="uuid", uuid=uuid, parameter=parameter)
    if value is None:
        raise _refuse(f"A part of type {kind!r} needs its embeddings.", parameter)
    return MediaPart(modality=modality, kind="embeds", source=value, uuid=uuid, parameter=parameter)


def _parse_object(kind: str, part: Mapping[Any, Any], policy: ContentPolicy, parameter: str) -> MediaPart:
    modality = _OBJECT_KEYS[kind]
    value = next((part[key] for key in (kind, "url", "path") if part.get(key) is not None), None)
    if not policy.accept_objects and kind != "image_pil" and (value is None or isinstance(value, str)):
        return _by_url(modality, value, part, parameter, part.get("detail"))
    if not policy.accept_objects:
        raise _refuse(f"Media in memory can only be handed to LLM.chat; send the {modality} by URL, or as a data URL.", parameter)
    uuid = _uuid_of(part, parameter)
    if value is None and uuid is None:
        raise _refuse(f"A part of type {kind!r} needs its {modality} under {kind!r}.", parameter)
    return MediaPart(modality=modality, kind="uuid" if value is None else "object", source=value, uuid=uuid, parameter=parameter)


_PartParser: TypeAlias = Callable[[str, Mapping[Any, Any], ContentPolicy, str], MediaPart]
_MEDIA_PARSERS: Final[Sequence[tuple[Sequence[str], _PartParser]]] = (
    (tuple(_URL_KEYS), _parse_url),
    (("input_image", "input_video"), _parse_responses_input),
    (("input_audio",), _parse_input_audio),
    (tuple(_EMBED_KEYS), _parse_embeds),
    (tuple(_OBJECT_KEYS), _parse_object),
)
