from __future__ import annotations

import json
import logging

import pytest

from inset import errors
from inset.errors import ClientError, InsetError, MediaDecodeError, OverloadedError, ServerError
from inset.server.error_map import ERROR_TYPES, error_body, error_response, status_of

CLASSES = [getattr(errors, name) for name in errors.__all__]
OPERATORS = [cls for cls in CLASSES if not issubclass(cls, ClientError | ServerError)]


@pytest.mark.parametrize("cls", CLASSES)
def test_every_error_has_a_status_a_type_and_a_code(cls: type[InsetError], caplog: pytest.LogCaptureFixture) -> None:
    response = error_response(cls("It went wrong."))
    body = json.loads(bytes(response.body))["error"]
    assert response.status_code == (cls.status if issubclass(cls, ClientError | ServerError) else 500)
    assert body["type"] == ERROR_TYPES[response.status_code]
    assert body["code"]
    assert set(body) == {"message", "type", "param", "code"} | ({"stage"} if "stage" in body else set())
    assert ("Retry-After" in response.headers) == (response.status_code == 503)
    assert ("WWW-Authenticate" in response.headers) == (response.status_code == 401)


@pytest.mark.parametrize("cls", [*OPERATORS, ValueError, KeyError])
def test_words_for_the_operator_stay_in_the_log(cls: type[Exception], caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.ERROR):
        response = error_response(cls("/etc/secret cannot be read"))
    assert response.status_code == 500
    assert b"secret" not in bytes(response.body)
    assert "/etc/secret" in caplog.text


def test_faults_of_clients_are_not_logged(caplog: pytest.LogCaptureFixture) -> None:
    error_response(MediaDecodeError("It is damaged."))
    assert caplog.records == []


def test_body_names_the_item_and_its_place() -> None:
    error = MediaDecodeError("It is damaged.", stage="decode", modality="image", item_index=1, parameter="messages[2].content[1]")
    assert error_body(error) == {
        "error": {
            "message": "image 1: It is damaged.",
            "type": "unprocessable_entity_error",
            "param": "messages[2].content[1]",
            "code": "media_decode_failed",
            "stage": "decode",
            "modality": "image",
            "item_index": 1,
        }
    }


@pytest.mark.parametrize(("seconds", "header"), [(0.2, "1"), (1.0, "1"), (7.4, "7")])
def test_retry_after_is_whole_seconds_and_never_none(seconds: float, header: str) -> None:
    assert error_response(OverloadedError("Full.", retry_after_seconds=seconds)).headers["Retry-After"] == header


def test_status_of_what_nobody_foresaw_is_500() -> None:
    assert status_of(RuntimeError()) == 500
