"""The shapes of requests and answers, in OpenAI's form, with the options that vLLM's clients know."""

from __future__ import annotations

import difflib
from collections.abc import Mapping, Sequence
from typing import Any, Final, Literal, TypeVar

import msgspec

from inset.errors import InvalidRequestError

__all__ = [
    "ChatRequest",
    "DetokenizeRequest",
    "RenderRequest",
    "ResponsesRequest",
    "SamplingFields",
    "StreamOptions",
    "TokenizeRequest",
    "convert",
]

T = TypeVar("T", bound=msgspec.Struct)

_UNKNOWN_FIELD: Final = "Object contains unknown field"


class StreamOptions(msgspec.Struct, kw_only=True, forbid_unknown_fields=True):
    """What a stream carries besides the answer.

    Attributes:
        include_usage: End with a chunk that has the usage and no choices.
        include_obfuscation: Accepted and without effect: nothing is padded.
    """

    include_usage: bool | None = None
    include_obfuscation: bool | None = None


class ResponseFormat(msgspec.Struct, kw_only=True):
    """The form of the answer; there is only text."""

    type: Literal["text"]


class SamplingFields(msgspec.Struct, kw_only=True, forbid_unknown_fields=True):
    """Options of sampling that all generating endpoints share; what a request leaves out is the checkpoint's own default.

    See `inset.SamplingParams` for their meaning.
    """

    temperature: float | None = None
    top_p: float | None = None
    top_k: int | None = None
    min_p: float | None = None
    presence_penalty: float | None = None
    frequency_penalty: float | None = None
    repetition_penalty: float | None = None
    seed: int | None = None
    stop: str | list[str] | None = None
    stop_token_ids: list[int] | None = None
    include_stop_str_in_output: bool | None = None
    ignore_eos: bool | None = None
    min_tokens: int | None = None
    skip_special_tokens: bool | None = None


class ConversationFields(SamplingFields, kw_only=True):
    """What every request for an answer to a conversation has.

    Attributes:
        model: The name under which the model is served; any when left out.
        mm_processor_kwargs: Processor options, accepted from trusted clients only.
        media_io_kwargs: Modality -> decode options, accepted from trusted clients only.
        cache_salt: Separates this client from others in every cache.
        top_logprobs: Of how many of the most likely tokens, 0 to 20.
        tools: Descriptions for the chat template; calls are not parsed out of the answer.
        user: Accepted and without effect, like all that only the accounting of a hosted service reads.
    """

    model: str | None = None
    mm_processor_kwargs: dict[str, Any] | None = None
    media_io_kwargs: dict[str, dict[str, Any]] | None = None
    cache_salt: str | None = None
    top_logprobs: int | None = None
    stream: bool | None = None
    stream_options: StreamOptions | None = None
    tools: list[dict[str, Any]] | None = None
    tool_choice: Literal["none", "auto"] | None = None
    parallel_tool_calls: Any = None
    user: Any = None
    metadata: Any = None
    store: Any = None
    service_tier: Any = None
    safety_identifier: Any = None
    prompt_cache_key: Any = None
    prompt_cache_retention: Any = None


class ChatRequest(ConversationFields, kw_only=True):
    """``POST /v1/chat/completions``.

    Attributes:
        messages: The conversation; the renderer checks it, and names what is wrong by its place.
        n: How many answers.
        max_tokens: The longest answer, in tokens; ``max_completion_tokens`` is its newer name and wins.
        logit_bias: Token id, as text, -> what is added to its logit.
        logprobs: Return log probabilities.
    """

    messages: Any
    n: int | None = None
    max_tokens: int | None = None
    max_completion_tokens: int | None = None
    logit_bias: dict[str, float] | None = None
    logprobs: bool | None = None
    documents: list[dict[str, Any]] | None = None
    add_generation_prompt: bool = True
    continue_final_message: bool = False
    chat_template_kwargs: dict[str, Any] | None = None
    response_format: ResponseFormat | None = None
    modalities: list[Literal["text"]] | None = None
    reasoning_effort: Any = None
    verbosity: Any = None


class RenderRequest(ChatRequest, kw_only=True):
    """``POST /v1/render``: as for a chat, or a plain prompt without media."""

    messages: Any = None
    prompt: str | None = None


class ReasoningOptions(msgspec.Struct, kw_only=True):
    """Accepted and without effect: models here do not separate reasoning."""

    effort: Any = None
    summary: Any = None


class TextOptions(msgspec.Struct, kw_only=True):
    """The form of the answer of the responses API."""

    format: ResponseFormat | None = None
    verbosity: Any = None


class ResponsesRequest(ConversationFields, kw_only=True):
    """``POST /v1/responses``.

    Attributes:
        input: Text, or a list of messages whose content is text or parts such as ``input_text`` and ``input_image``.
        instructions: A system message before the input.
        max_output_tokens: The longest answer, in tokens.
    """

    input: Any
    instructions: str | None = None
    max_output_tokens: int | None = None
    truncation: Literal["disabled"] | None = None
    text: TextOptions | None = None
    reasoning: ReasoningOptions | None = None
    include: list[Literal["message.output_text.logprobs"]] | None = None
    background: bool | None = None


class TokenizeRequest(msgspec.Struct, kw_only=True, forbid_unknown_fields=True):
    """``POST /tokenize``: a plain prompt, or a conversation whose media are expanded to their placeholders.

    Attributes:
        add_special_tokens: Put around a plain prompt what the tokenizer puts there.
        return_token_strs: Also return each token as the vocabulary spells it.
    """

    model: str | None = None
    prompt: str | None = None
    messages: Any = None
    add_special_tokens: bool = True
    add_generation_prompt: bool = True
    continue_final_message: bool = False
    chat_template_kwargs: dict[str, Any] | None = None
    tools: list[dict[str, Any]] | None = None
    return_token_strs: bool = False


class DetokenizeRequest(msgspec.Struct, kw_only=True, forbid_unknown_fields=True):
    """``POST /detokenize``."""

    tokens: list[int]
    model: str | None = None


def convert(value: object, kind: type[T]) -> T:
    """Returns a parsed body as a request of a kind.

    A field that is null counts as left out, known here or not: clients write out all fields that their API has.

    Raises:
        InvalidRequestError: A field is missing, unknown or of a wrong type; it is named.
    """
    if not isinstance(value, Mapping):
        raise InvalidRequestError("The body must be a JSON object.", stage="parse")
    fields = msgspec.structs.fields(kind)
    known, needed = [field.name for field in fields], [field.name for field in fields if field.required]
    given = {name: item for name, item in value.items() if item is not None or name in needed}
    for name in given:
        if name not in known:
            raise InvalidRequestError(
                f"There is no field {str(name)[:100]!r} here.{_near(str(name)[:100], known)}", stage="parse", parameter=str(name)[:100]
            )
    try:
        return msgspec.convert(given, kind)
    except msgspec.ValidationError as error:
        message, _, path = str(error).partition(" - at `$")
        parameter = path.rstrip("`").lstrip(".") or None
        where = f"{parameter}: " if parameter else ""
        raise InvalidRequestError(f"{where}{message}.", stage="parse", parameter=parameter) from error


def _near(name: str, known: Sequence[str]) -> str:
    near = difflib.get_close_matches(name, known, n=1)
    return f" Did you mean {near[0]!r}?" if near else ""
