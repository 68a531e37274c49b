"""What the caller can mend: requests, and the media that they name."""

from __future__ import annotations

from inset.errors.base import InsetError

__all__ = [
    "AuthenticationError",
    "ClientError",
    "InvalidRequestError",
    "ItemLimitError",
    "ItemTooLargeError",
    "MediaDecodeError",
    "MediaError",
    "MediaFetchError",
    "MediaNotCachedError",
    "MediaPolicyError",
    "MediaTimeoutError",
    "ModelNotFoundError",
    "PlaceholderError",
    "PromptTooLongError",
    "TooLargeError",
    "TransientFetchError",
    "UuidConflictError",
]


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
