"""Every exception that Inset raises on purpose.

Leaf = cause, branch = whose fault it is and what a caller can do about it::

    InsetError
    ├── ClientError                      the caller can mend it
    │   ├── InvalidRequestError      400 malformed request, unknown part or option
    │   │   ├── PromptTooLongError   400 more tokens than the context holds
    │   │   ├── ItemLimitError       400 more items than a prompt may have
    │   │   ├── ItemTooLargeError    400 more embeds than the encoder cache holds
    │   │   ├── PlaceholderError     400 placeholders in the prompt and items differ
    │   │   ├── MediaPolicyError     400 a host, scheme, address or path that is not allowed
    │   │   └── UuidConflictError    400 a uuid that is bound to other bytes
    │   ├── AuthenticationError      401 no or wrong API key
    │   ├── ModelNotFoundError       404 a model that is not served here
    │   ├── MediaNotCachedError      409 a uuid without bytes that is not, or no longer, cached
    │   ├── TooLargeError            413 a body or media over a byte, pixel or decoded-size cap
    │   └── MediaError               422 media that cannot be had
    │       ├── MediaFetchError      422 not fetched
    │       │   ├── MediaTimeoutError 422 not fetched within the total deadline
    │       │   └── TransientFetchError 422 not fetched this time; the core tries again
    │       └── MediaDecodeError     422 fetched, but it is not media, or it is damaged
    ├── ServerError                      nothing the caller sent is wrong
    │   ├── OverloadedError          503 one of our own limits is reached; come again
    │   ├── EngineDeadError          503 the engine core is gone
    │   ├── EncoderError             500 an encoder failed on good input; that request alone is lost
    │   └── InvariantError           500 a mistake of ours
    ├── ConfigError                      an option, checkpoint or environment that cannot be served; raised at start-up
    │   └── MissingExtraError            an optional dependency is not installed
    └── PluginError                      raised while plugins are found and registered
        ├── PluginLoadError              a plugin could not be imported or is made for another version
        ├── PluginContractError          a plugin breaks the rules of a hook or registry
        ├── DuplicateNameError           two plugins claim one name
        └── UnknownNameError             a name that nothing provides

A message says what happened, with which item, and what to do. It never carries a URL's query or user-info, base64 data or a file path.
"""

from __future__ import annotations

from typing import ClassVar, Self, TypeVar

__all__ = [
    "AuthenticationError",
    "ClientError",
    "ConfigError",
    "DuplicateNameError",
    "EncoderError",
    "EngineDeadError",
    "InsetError",
    "InvalidRequestError",
    "InvariantError",
    "ItemLimitError",
    "ItemTooLargeError",
    "MediaDecodeError",
    "MediaError",
    "MediaFetchError",
    "MediaNotCachedError",
    "MediaPolicyError",
    "MediaTimeoutError",
    "MissingExtraError",
    "ModelNotFoundError",
    "OverloadedError",
    "PlaceholderError",
    "PluginContractError",
    "PluginError",
    "PluginLoadError",
    "PromptTooLongError",
    "ServerError",
    "TooLargeError",
    "TransientFetchError",
    "UnknownNameError",
    "UuidConflictError",
]

E = TypeVar("E", bound="InsetError")


class InsetError(Exception):
    """The root of all errors of Inset.

    Attributes:
        message: What happened, with which item, and what to do.
        code: A short stable name for programs, such as ``media_timeout``; each class has a default.
        status: The HTTP status that the server answers with.
        stage: Where it happened: one of ``parse``, ``fetch``, ``probe``, ``decode``, ``plan``, ``materialize``, ``queue``, ``transfer``,
            ``encode``, ``generate``; for a plugin one of those in `inset.plugins.PluginReport`.
        modality: ``image``, ``video`` or ``audio`` when one item is to blame, or ``prompt`` for embeddings that stand for text.
        item_index: The position of that item among the request's items of its modality, from 0.
        parameter: The request field, such as ``messages[2].content[1]``; only the server and the renderer know it.
    """

    status: ClassVar[int] = 500
    default_code: ClassVar[str] = "internal_error"

    def __init__(
        self,
        message: str,
        *,
        code: str | None = None,
        stage: str | None = None,
        modality: str | None = None,
        item_index: int | None = None,
        parameter: str | None = None,
    ) -> None:
        super().__init__(message)
        self.message = message
        self.code = code or self.default_code
        self.stage = stage
        self.modality = modality
        self.item_index = item_index
        self.parameter = parameter

    def locate(
        self,
        *,
        stage: str | None = None,
        modality: str | None = None,
        item_index: int | None = None,
        parameter: str | None = None,
    ) -> Self:
        """Fills in what is not known yet about the place of the fault, and returns this error."""
        self.stage = self.stage or stage
        self.modality = self.modality or modality
        self.item_index = item_index if self.item_index is None else self.item_index
        self.parameter = self.parameter or parameter
        return self

    def __str__(self) -> str:
        if self.modality is None or self.item_index is None:
            return self.message
        return f"{self.modality} {self.item_index}: {self.message}"

    def __copy__(self) -> Self:
        """Gives each of several callers an error of its own, with the same cause, in which its own item can be noted."""
        twin = _rebuild(type(self), self.message, dict(self.__dict__))
        twin.__cause__ = self.__cause__
        return twin

    def __reduce__(self) -> tuple[object, ...]:
        return (_rebuild, (type(self), self.message, dict(self.__dict__)))


def _rebuild(cls: type[E], message: str, state: dict[str, object]) -> E:
    error = cls.__new__(cls)
    Exception.__init__(error, message)
    error.__dict__.update(state)
    return error


class ClientError(InsetError):
    """The caller sent something that cannot be served; sending it again unchanged will not help."""

    status = 400
    default_code = "invalid_request"


class InvalidRequestError(ClientError):
    """A malformed request: an unknown content part, option or value."""


class PromptTooLongError(InvalidRequestError):
    """The prompt with its placeholders, or the prompt and the answer, exceed the context length."""

    default_code = "context_length_exceeded"


class ItemLimitError(InvalidRequestError):
    """A prompt has more items of one modality than are allowed, or a modality that is not served."""

    default_code = "too_many_items"


class ItemTooLargeError(InvalidRequestError):
    """One item needs more embeds than the encoder cache or the context can ever hold."""

    default_code = "item_too_large"


class PlaceholderError(InvalidRequestError):
    """The prompt holds another number of placeholders than there are items."""

    default_code = "placeholder_mismatch"


class MediaPolicyError(InvalidRequestError):
    """A scheme, host, address, redirect or path that the operator has not allowed."""

    default_code = "media_not_allowed"


class UuidConflictError(InvalidRequestError):
    """A client uuid came with other bytes than those it is still bound to."""

    default_code = "uuid_conflict"


class AuthenticationError(ClientError):
    """No API key, or a wrong one."""

    status = 401
    default_code = "invalid_api_key"


class ModelNotFoundError(ClientError):
    """The request names a model that is not served here."""

    status = 404
    default_code = "model_not_found"


class MediaNotCachedError(ClientError):
    """A uuid without bytes is not bound here, or its item is no longer cached: send the bytes again."""

    status = 409
    default_code = "media_not_cached"


class TooLargeError(ClientError):
    """A body or an item is over a cap on bytes, pixels, frames, seconds or decoded size."""

    status = 413
    default_code = "too_large"


class MediaError(ClientError):
    """Media that cannot be had from what the client gave."""

    status = 422
    default_code = "media_error"


class MediaFetchError(MediaError):
    """Media could not be fetched; the remote status, where there is one, stands in the message."""

    default_code = "media_fetch_failed"


class MediaTimeoutError(MediaFetchError):
    """Media did not arrive within the total deadline of its modality."""

    default_code = "media_timeout"


class TransientFetchError(MediaFetchError):
    """Media was not fetched this time, but another attempt may succeed; connectors raise it, and the core tries again.

    Attributes:
        retry_after_seconds: How long the far side asked to be left alone, in seconds, where it said so.
    """

    def __init__(self, message: str, *, retry_after_seconds: float | None = None, stage: str | None = "fetch") -> None:
        super().__init__(message, stage=stage)
        self.retry_after_seconds = retry_after_seconds


class MediaDecodeError(MediaError):
    """The bytes are not media of the modality asked for, or they are damaged."""

    default_code = "media_decode_failed"


class ServerError(InsetError):
    """The request was good; we could not serve it."""


class OverloadedError(ServerError):
    """One of our own limits is reached.

    Attributes:
        retry_after_seconds: When it makes sense to try again, in seconds.
    """

    status = 503
    default_code = "overloaded"

    def __init__(self, message: str, *, retry_after_seconds: float = 1.0, stage: str | None = None, code: str | None = None) -> None:
        super().__init__(message, stage=stage, code=code)
        self.retry_after_seconds = retry_after_seconds


class EngineDeadError(ServerError):
    """The engine core is gone; requests that ran in it are lost."""

    status = 503
    default_code = "engine_dead"


class EncoderError(ServerError):
    """An encoder failed on good input, or gave another number of rows than was planned; only that request is lost."""

    default_code = "encoder_failed"


class InvariantError(ServerError):
    """Something that cannot happen has happened: a mistake of ours."""


class ConfigError(InsetError):
    """An option, a checkpoint or the environment cannot be served; raised at start-up, never while serving."""

    default_code = "invalid_config"


class MissingExtraError(ConfigError):
    """An optional dependency is not installed; the message names the extra to install."""

    default_code = "missing_extra"


class PluginError(InsetError):
    """Something is wrong with a plugin; raised while plugins are found and registered."""

    default_code = "plugin_error"


class PluginLoadError(PluginError):
    """A plugin could not be imported, or is made for another version of Inset."""


class PluginContractError(PluginError):
    """A plugin breaks the rules of a hook or of a registry."""


class DuplicateNameError(PluginError):
    """Two plugins claim one name; the message names both distributions and the option that settles it."""


class UnknownNameError(PluginError):
    """Nothing provides this name; the message lists what there is and which package to install."""
