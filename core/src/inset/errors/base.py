"""The root of the tree: what every error knows of itself, and how it keeps that when it is copied or sent to another process."""

from __future__ import annotations

from typing import ClassVar, Self, TypeVar

__all__ = ["InsetError"]

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
