"""One tiny model for all tests of the worker."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import pytest

from inset.inputs import EngineRequest
from inset.testing.linear_model import LinearAdapter, build_linear_adapter, reference_answer

AnswerCheck = Callable[[Mapping[str, Sequence[int]], Sequence[EngineRequest]], None]


@pytest.fixture(scope="session")
def adapter() -> LinearAdapter:
    """A tiny Llama; nothing in it changes."""
    return build_linear_adapter()


@pytest.fixture
def assert_plain_answers(adapter: LinearAdapter) -> AnswerCheck:
    """Compares answers with those of the plain module."""

    def check(answers: Mapping[str, Sequence[int]], requests: Sequence[EngineRequest]) -> None:
        for request in requests:
            expected = reference_answer(adapter, request)
            assert len(expected) >= 4, "a reference that ends at once compares nothing"
            assert list(answers[request.request_id][: len(expected)]) == expected, request.request_id

    return check
