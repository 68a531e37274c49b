"""What the caller cannot mend: limits of ours, and what broke here."""

from __future__ import annotations

from inset.errors.base import InsetError

__all__ = ["EncoderError", "EngineDeadError", "InvariantError", "OverloadedError", "ServerError"]


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
