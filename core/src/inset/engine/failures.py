"""What the engine core says about a request that could not go on, as the error that its client gets."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from inset.errors import EncoderError, InvalidRequestError, InvariantError, ItemTooLargeError, PromptTooLongError

if TYPE_CHECKING:
    from inset.errors import InsetError
    from inset.step import RequestFailure

__all__ = ["error_of"]

_CLASSES_BY_CODE: Final = {cls.default_code: cls for cls in (PromptTooLongError, ItemTooLargeError, InvalidRequestError, EncoderError)}


def error_of(failure: RequestFailure) -> InsetError:
    """Returns an error of the class that the failure's code belongs to, or a fault of ours."""
    default = EncoderError if failure.modality is not None else InvariantError
    cls = _CLASSES_BY_CODE.get(failure.code or "", default)
    return cls(failure.message, stage=failure.stage, modality=failure.modality, item_index=failure.item_index)
