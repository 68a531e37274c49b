"""What the engine core says of a request that could not go on becomes an error that says as much."""

from __future__ import annotations

import pytest

from inset.engine.failures import error_of
from inset.errors import EncoderError, InsetError, InvariantError, ItemTooLargeError, PromptTooLongError
from inset.step import RequestFailure


@pytest.mark.parametrize(
    ("failure", "kind"),
    [
        (RequestFailure("No.", "image", 1, "item_too_large", stage="queue"), ItemTooLargeError),
        (RequestFailure("No.", None, None, "context_length_exceeded", stage="queue"), PromptTooLongError),
        (RequestFailure("No.", "video", 0, stage="encode"), EncoderError),
        (RequestFailure("No."), InvariantError),
    ],
)
def test_an_error_keeps_class_stage_and_item(failure: RequestFailure, kind: type[InsetError]) -> None:
    error = error_of(failure)
    assert type(error) is kind
    assert (error.stage, error.modality, error.item_index) == (failure.stage, failure.modality, failure.item_index)
