from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import pytest
import torch

from inset.errors import InvariantError
from inset.inputs import EngineRequest, MultiModalFeature
from inset.step import CachedRequestData, SchedulerOutput
from inset.testing.linear_model import (
    LinearAdapter,
    build_driver,
    build_linear_adapter,
    build_runner,
    make_feature,
    make_request,
    reference_answer,
)

AnswerCheck = Callable[[Mapping[str, Sequence[int]], Sequence[EngineRequest]], None]

MASKED = [False, *[True] * 9, False, *[True] * 9, False]


def mixed_requests() -> list[EngineRequest]:
    """Eight requests of other lengths, items in other places, one item shared by two of them."""
    shared = make_feature(20, [True] * 24, name="shared")
    return [
        make_request("text", 40),
        make_request("one", 70, [make_feature(5, [True] * 30, name="a")]),
        make_request("first", 50, [make_feature(0, MASKED, name="b")]),
        make_request("last", 47, [make_feature(47 - len(MASKED), MASKED, name="c")]),
        make_request("four", 150, [make_feature(10 + 35 * i, [True] * 20, name=f"d{i}", index=i) for i in range(4)]),
        make_request("short", 3),
        make_request("sharing", 60, [shared]),
        make_request("also", 64, [shared]),
    ]


@pytest.mark.parametrize("window", [1, 7, 16, 64, 1000])
def test_answers_equal_the_plain_modules_in_any_window(adapter: LinearAdapter, assert_plain_answers: AnswerCheck, window: int) -> None:
    requests = mixed_requests()
    assert_plain_answers(build_driver(build_runner(adapter)).run(requests, window=window), requests)


def test_a_window_of_one_token_inside_a_prompt_leaves_no_stale_row(adapter: LinearAdapter, assert_plain_answers: AnswerCheck) -> None:
    """Such a window looks like a decode step; the windows behind it would be missing from a row filled for it."""
    requests = mixed_requests()
    driver = build_driver(build_runner(adapter))
    for request in requests:
        driver.add(request)
    for window in (9, 1, 8, 1, 1, 20):
        driver.step(window)
    assert_plain_answers(driver.run(), requests)


@pytest.mark.parametrize("workspace_bytes", [0, 600_000, None], ids=["no workspace", "few rows", "all rows"])
def test_answers_do_not_depend_on_the_decode_workspace(
    adapter: LinearAdapter, assert_plain_answers: AnswerCheck, workspace_bytes: int | None
) -> None:
    requests = mixed_requests()
    runner = build_runner(adapter, workspace_bytes=workspace_bytes)
    assert_plain_answers(build_driver(runner).run(requests, window=33), requests)
    assert (runner.stats.num_workspace_rows == 0) == (workspace_bytes == 0)


@pytest.mark.parametrize(
    "changes",
    [
        {"num_key_value_heads": 4},
        {"num_key_value_heads": 1},
        {"model_type": "qwen2"},
        {"model_type": "qwen3", "head_dim": 16},
        {"model_type": "mistral", "sliding_window": 24},
        {"model_type": "gemma2", "sliding_window": 24, "head_dim": 16, "attn_logit_softcapping": 3.0},
    ],
    ids=["full heads", "one kv head", "qwen2", "qwen3", "sliding window", "softcap"],
)
def test_every_served_kind_of_attention_gives_the_plain_modules_tokens(changes: dict[str, Any]) -> None:
    adapter = build_linear_adapter(**changes)
    requests = [make_request("long", 70, [make_feature(5, [True] * 30, name="a")]), make_request("short", 20), make_request("mid", 33)]
    for window in (16, 1000):
        answers = build_driver(build_runner(adapter)).run(requests, window=window)
        for request in requests:
            expected = reference_answer(adapter, request)
            assert answers[request.request_id][: len(expected)] == expected


def test_a_long_answer_outgrows_its_row_and_goes_on(adapter: LinearAdapter, assert_plain_answers: AnswerCheck) -> None:
    request = make_request("long", 1020, max_tokens=12)
    runner = build_runner(adapter)
    assert_plain_answers(build_driver(runner).run([request], window=500), [request])


def test_blocks_of_another_request_serve_an_equal_beginning(adapter: LinearAdapter, assert_plain_answers: AnswerCheck) -> None:
    """The hit ends inside the item: the rest of its rows comes from the encoder cache."""
    feature = make_feature(8, [True] * 40, name="a")
    first = make_request("first", 80, [feature])
    second = EngineRequest(
        request_id="second",
        prompt_token_ids=[*first.prompt_token_ids[:60], 5, 6, 7],
        mm_features=[feature],
        sampling_params=first.sampling_params,
    )
    driver = build_driver(build_runner(adapter))
    driver.add(first)
    driver.step(1000)
    driver.add(second, like="first", num_computed_tokens=32)
    assert_plain_answers(driver.run(), [first, second])


@pytest.mark.parametrize("steps", [1, 3, 9])
def test_a_preempted_request_comes_back_with_the_same_answer(adapter: LinearAdapter, assert_plain_answers: AnswerCheck, steps: int) -> None:
    requests = [make_request("kept", 40), make_request("preempted", 70, [make_feature(5, [True] * 30, name="a")])]
    driver = build_driver(build_runner(adapter))
    for request in requests:
        driver.add(request)
    for _ in range(steps):
        driver.step(30)
    driver.preempt("preempted")
    driver.drop_encoder_output(requests[1].mm_features[0].mm_hash)
    assert_plain_answers(driver.run(window=30), requests)


def test_prompt_embeddings_take_the_place_of_tokens(adapter: LinearAdapter, assert_plain_answers: AnswerCheck) -> None:
    given = np.random.default_rng(3).normal(size=(45, adapter.hidden_size)).astype(np.float32)
    request = EngineRequest(
        request_id="given",
        prompt_token_ids=[0] * 45,
        prompt_embeds=given,
        sampling_params=make_request("x", 1).sampling_params,
    )
    assert_plain_answers(build_driver(build_runner(adapter)).run([request, make_request("text", 20)], window=16), [request])


def test_finished_embeddings_skip_the_encoder(adapter: LinearAdapter) -> None:
    feature = make_feature(5, [True] * 12, name="a")
    assert feature.data is not None
    embeds = feature.data["values"] @ adapter.projection.numpy()
    given = MultiModalFeature(
        modality="image",
        item_index=0,
        mm_hash=b"g" * 32,
        placeholder=feature.placeholder,
        data={"embeds": embeds},
        plan=feature.plan,
        is_embedding=True,
    )
    encoded = make_request("r", 30, [feature])
    runner = build_runner(adapter)
    answer = build_driver(runner).run([make_request("r", 30, [given])])
    assert answer["r"][:4] == reference_answer(adapter, encoded)[:4]
    assert runner.stats.num_encoder_runs == 0


def test_equal_items_are_encoded_once_and_alike_ones_together() -> None:
    adapter = build_linear_adapter()
    runner = build_runner(adapter)
    requests = [make_request(f"r{i}", 40, [make_feature(4, [True] * 10, name=f"item{i % 3}")]) for i in range(6)]
    requests.append(make_request("other", 40, [make_feature(4, [True] * 11, name="another size")]))
    build_driver(runner).run(requests)
    assert sorted(adapter.batch_sizes) == [1, 3]
    assert runner.stats.num_encoder_runs == 4


@pytest.mark.parametrize(("fill", "reason"), [(13.0, "RuntimeError"), (14.0, "room for")], ids=["raises", "loses a row"])
def test_an_encoder_failure_fails_only_the_requests_that_use_the_item(
    adapter: LinearAdapter, assert_plain_answers: AnswerCheck, fill: float, reason: str
) -> None:
    guilty = make_feature(5, [True] * 10, name="guilty", fill=fill)
    good = [make_request(f"good{i}", 30, [make_feature(5, [True] * 10, name=f"good{i}")]) for i in range(3)]
    bad = [make_request("bad", 30, [guilty]), make_request("bad too", 35, [guilty])]
    driver = build_driver(build_runner(adapter))
    answers = driver.run([good[0], bad[0], good[1], bad[1], good[2]])
    assert_plain_answers(answers, good)
    assert set(driver.failures) == {"bad", "bad too"}
    failure = driver.failures["bad"]
    assert (failure.stage, failure.modality, failure.item_index) == ("encode", "image", 0)
    assert reason in failure.message
    assert "thirteen" not in failure.message


def test_a_missing_encoder_output_fails_that_request_alone(adapter: LinearAdapter, assert_plain_answers: AnswerCheck) -> None:
    lost = make_feature(5, [True] * 10, name="lost")
    requests = [make_request("text", 30), make_request("lost", 30, [lost])]
    driver = build_driver(build_runner(adapter))
    driver.believe_encoded(lost.mm_hash)
    assert_plain_answers(driver.run(requests), requests[:1])
    assert "missing" in driver.failures["lost"].message
    assert driver.failures["lost"].stage == "encode"


def test_a_reset_encoder_cache_is_filled_again(adapter: LinearAdapter, assert_plain_answers: AnswerCheck) -> None:
    feature = make_feature(5, [True] * 30, name="a")
    request = make_request("r", 60, [feature])
    runner = build_runner(adapter)
    driver = build_driver(runner)
    driver.add(request)
    driver.step(10)
    runner.reset_encoder_cache()
    assert runner.stats.encoder_cache.num_items == 0
    driver.drop_encoder_output(feature.mm_hash, tell_runner=False)
    assert_plain_answers(driver.run(window=10), [request])


def test_nothing_is_kept_of_finished_requests(adapter: LinearAdapter) -> None:
    runner = build_runner(adapter)
    requests = mixed_requests()
    build_driver(runner).run(requests)
    hashes = [feature.mm_hash for request in requests for feature in request.mm_features]
    runner.execute(SchedulerOutput(finished_req_ids=[r.request_id for r in requests], free_encoder_mm_hashes=hashes))
    stats = runner.stats
    assert (stats.num_requests, stats.num_workspace_rows, stats.encoder_cache.num_bytes) == (0, 0, 0)


def test_a_request_that_nobody_announced_is_our_own_mistake(adapter: LinearAdapter) -> None:
    runner = build_runner(adapter)
    with pytest.raises(InvariantError, match="does not know"):
        runner.execute(SchedulerOutput(scheduled_cached_reqs=[CachedRequestData("ghost", (), 0)], num_scheduled_tokens={"ghost": 1}))


def test_placeholder_ids_may_lie_outside_the_embedding_table(adapter: LinearAdapter) -> None:
    feature = make_feature(5, [True] * 10, name="a")
    inside = make_request("r", 30, [feature])
    outside = EngineRequest(
        request_id="r",
        prompt_token_ids=[99_999 if 5 <= p < 15 else t for p, t in enumerate(inside.prompt_token_ids)],
        mm_features=[feature],
        sampling_params=inside.sampling_params,
    )
    assert build_driver(build_runner(adapter)).run([outside]) == build_driver(build_runner(adapter)).run([inside])


def test_seeded_sampling_repeats_in_any_company_and_after_preemption(adapter: LinearAdapter) -> None:
    options: dict[str, Any] = {"temperature": 1.0, "seed": 7, "top_p": 0.95}
    request = make_request("r", 30, **options)
    alone = build_driver(build_runner(adapter)).run([request])["r"]
    crowd = [make_request(f"s{i}", 25 + i, temperature=1.5) for i in range(5)]
    assert build_driver(build_runner(adapter)).run([*crowd, request])["r"] == alone
    driver = build_driver(build_runner(adapter))
    driver.add(request)
    for _ in range(5):
        driver.step(100)
    driver.preempt("r")
    assert driver.run()["r"] == alone


def test_bfloat16_runs_and_stays_near_float32() -> None:
    adapter = build_linear_adapter()
    logits = adapter.plain_forward(torch.arange(3, 40))
    adapter.text_model.to(torch.bfloat16)
    adapter.projection, adapter.head = adapter.projection.bfloat16(), adapter.head.bfloat16()
    coarse = adapter.plain_forward(torch.arange(3, 40))
    assert (coarse.float() - logits).abs().max() < 0.1 * logits.abs().max()
    answer = build_driver(build_runner(adapter, dtype=torch.bfloat16)).run([make_request("r", 30)])
    assert len(answer["r"]) == 12


@pytest.mark.parametrize("workspace_bytes", [0, None], ids=["gathered", "dense"])
@pytest.mark.parametrize("value", [float("nan"), float("inf")])
def test_values_that_are_not_finite_fail_their_request_and_reach_nobody(
    adapter: LinearAdapter, assert_plain_answers: AnswerCheck, value: float, workspace_bytes: int | None
) -> None:
    """Decoding neighbours are padded to one length, over memory that others used before them."""
    poisoned = make_request("poisoned", 60, [make_feature(50, [True] * 8, name="poison", fill=value)])
    good = [make_request(f"good{i}", 30 + 3 * i) for i in range(3)]
    runner = build_runner(adapter, workspace_bytes=workspace_bytes)
    driver = build_driver(runner)
    answers = driver.run([good[0], poisoned, good[1]], window=32)
    assert_plain_answers(answers, good[:2])
    assert "not finite" in driver.failures["poisoned"].message
    assert driver.failures["poisoned"].stage == "generate"
    blocks = driver.take_back("poisoned")
    heir = make_request("heir", 20, max_tokens=40)
    driver.add(heir, blocks=blocks)
    assert_plain_answers(driver.run([good[2]]), [heir, good[2]])


@pytest.mark.parametrize("shape", [(44, 32), (45, 31)])
def test_prompt_embeddings_of_another_shape_fail_their_request_alone(
    adapter: LinearAdapter, assert_plain_answers: AnswerCheck, shape: tuple[int, int]
) -> None:
    wrong = EngineRequest(request_id="wrong", prompt_token_ids=[0] * 45, prompt_embeds=np.zeros(shape, np.float32))
    good = make_request("good", 30)
    driver = build_driver(build_runner(adapter))
    assert_plain_answers(driver.run([wrong, good]), [good])
    assert set(driver.failures) == {"wrong"}


def test_a_window_of_one_token_inside_a_prompt_changes_nothing(adapter: LinearAdapter, assert_plain_answers: AnswerCheck) -> None:
    request = make_request("r", 50)
    driver = build_driver(build_runner(adapter))
    driver.add(request)
    for window in (16, 1, 20, 1):
        driver.step(window)
    assert_plain_answers(driver.run(), [request])
