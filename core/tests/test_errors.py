"""Errors keep what they know on every way they take."""

from __future__ import annotations

import copy
import pickle

import pytest

from inset.errors import InsetError, MediaDecodeError, OverloadedError, TransientFetchError


def raised(error: InsetError) -> InsetError:
    try:
        raise error from KeyError("cause")
    except InsetError as caught:
        return caught


@pytest.mark.parametrize(
    "error",
    [
        MediaDecodeError("It is damaged.", code="special", stage="probe", modality="image", item_index=3, parameter="messages[0]"),
        OverloadedError("Too many.", retry_after_seconds=7.0, stage="queue"),
        TransientFetchError("Not now.", retry_after_seconds=2.0),
    ],
)
def test_copied_and_pickled_error_keeps_class_place_and_further_fields(error: InsetError) -> None:
    for other in (copy.copy(error), pickle.loads(pickle.dumps(error))):  # noqa: S301 - our own bytes
        assert type(other) is type(error)
        assert (str(other), other.args, vars(other)) == (str(error), error.args, vars(error))


def test_copy_takes_its_cause_along_and_a_place_of_its_own() -> None:
    error = raised(MediaDecodeError("It is damaged."))
    twin = copy.copy(error)
    assert twin.__cause__ is error.__cause__
    twin.locate(modality="image", item_index=1)
    assert (error.modality, error.item_index) == (None, None)


def test_place_that_is_known_is_not_overwritten() -> None:
    error = MediaDecodeError("It is damaged.", stage="probe", modality="image", item_index=0)
    error.locate(stage="decode", modality="video", item_index=5)
    assert (error.stage, error.modality, error.item_index) == ("probe", "image", 0)
    assert str(error) == "image 0: It is damaged."
