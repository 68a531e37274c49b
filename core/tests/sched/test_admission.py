from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import pytest

from inset.errors import InsetError, InvalidRequestError, InvariantError, ItemTooLargeError, PromptTooLongError
from inset.inputs import EngineRequest, MultiModalFeature
from inset.sched.admission import check_admission
from inset.sched.limits import SchedulerLimits

Items = Sequence[tuple[Any, ...]]


@pytest.fixture(scope="session")
def check(make_limits: Callable[..., SchedulerLimits], make_item: Any, make_request: Any) -> Callable[..., None]:
    def run(length: int, items: Items, limits: dict[str, Any], item: dict[str, Any]) -> None:
        features: list[MultiModalFeature] = [make_item(*place, item_index=index, **item) for index, place in enumerate(items)]
        request: EngineRequest = make_request("r", length, features)
        check_admission(request, make_limits(**limits))

    return run


@pytest.mark.parametrize(
    ("length", "items", "limits", "item"),
    [
        (255, [], {}, {}),
        (100, [("A", 0, 64), ("B", 64, 30)], {}, {}),
        (100, [("A", 0, 90, ((10, 70),))], {}, {}),
        (64, [], {"enable_chunked_prefill": False}, {}),
        (60, [("A", 0, 30), ("A", 30, 30)], {"enable_chunked_prefill": False, "encoder_cache_size": 30}, {}),
        (64, [("A", 0, 64)], {"disable_chunked_mm_input": True}, {}),
        (64, [("A", 0, 64)], {"encoder_compute_budget": 0}, {"is_embedding": True}),
    ],
    ids=["longest", "largest_items", "separators_are_free", "one_step", "one_item_twice", "one_step_item", "embeddings_need_no_budget"],
)
def test_what_can_run_passes(length: int, items: Items, limits: dict[str, Any], item: dict[str, Any], check: Callable[..., None]) -> None:
    check(length, items, limits, item)


@pytest.mark.parametrize(
    ("length", "items", "limits", "error", "numbers"),
    [
        (0, [], {}, InvalidRequestError, "prompt is empty"),
        (256, [], {}, PromptTooLongError, "256 tokens and the context holds 256"),
        (64, [], {"num_blocks": 16}, PromptTooLongError, "64 tokens and the KV cache holds 64"),
        (65, [], {"enable_chunked_prefill": False}, PromptTooLongError, "65 tokens and a step computes 64"),
        (100, [("A", 0, 65)], {"encoder_compute_budget": 99}, ItemTooLargeError, "65 embeds and the encoder cache holds 64"),
        (100, [("A", 0, 65)], {"encoder_cache_size": 99}, ItemTooLargeError, "65 embeds and a step makes 64"),
        (100, [("A", 0, 65, ((0, 1),))], {"disable_chunked_mm_input": True}, ItemTooLargeError, "65 positions and a step computes 64"),
        (60, [("A", 0, 30), ("B", 30, 30)], {"enable_chunked_prefill": False, "encoder_cache_size": 59}, ItemTooLargeError, "60 embeds"),
        (60, [("A", 0, 30), ("B", 30, 30)], {"enable_chunked_prefill": False, "encoder_compute_budget": 59}, ItemTooLargeError, "makes 59"),
        (20, [("A", 0, 6), ("B", 5, 6)], {}, InvariantError, "positions 5 to 11 of 20, and the one before it ends at 6"),
        (20, [("A", 15, 6)], {}, InvariantError, "positions 15 to 21 of 20"),
    ],
)
def test_what_can_never_run_is_refused_with_the_numbers(
    length: int, items: Items, limits: dict[str, Any], error: type[InsetError], numbers: str, check: Callable[..., None]
) -> None:
    with pytest.raises(error, match=numbers) as caught:
        check(length, items, limits, {})
    assert caught.value.stage == "queue"


def test_the_refusal_of_an_item_names_it(check: Callable[..., None]) -> None:
    with pytest.raises(ItemTooLargeError, match=r"^video 1: ") as caught:
        check(200, [("A", 0, 10), ("B", 10, 65)], {}, {"modality": "video"})
    assert (caught.value.modality, caught.value.item_index) == ("video", 1)
