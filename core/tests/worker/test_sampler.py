from __future__ import annotations

import math
from collections import Counter
from typing import Any

import pytest
import torch

from inset.sampling_params import SamplingParams
from inset.worker.sampler import sample
from inset.worker.sampling_state import SamplingState

LOGITS = [2.0, 1.0, 0.0, -1.0, -2.0, -3.0]


def state(prompt: tuple[int, ...] = (), output: tuple[int, ...] = (), eos: tuple[int, ...] = (), **options: Any) -> SamplingState:
    params = SamplingParams(**{"temperature": 0.0, "max_tokens": 64, **options})
    return SamplingState(params, seed=params.seed or 0, prompt_token_ids=prompt, output_token_ids=output, eos_token_ids=eos)


def choose(made: SamplingState, logits: list[float] = LOGITS) -> int:
    return sample(torch.tensor([logits]), [made]).token_ids[0]


def drawn(num_draws: int = 400, **options: Any) -> Counter[int]:
    made = state(**{"temperature": 1.0, "seed": 3, **options})
    return Counter(choose(made) for _ in range(num_draws))


@pytest.mark.parametrize(
    ("made", "expected"),
    [
        (state(), 0),
        (state(logit_bias={3: 10.0}), 3),
        (state(logit_bias={0: -5.0, 999: 50.0}), 1),
        (state(output=(0,), presence_penalty=1.5), 1),
        (state(prompt=(0,), presence_penalty=2.0), 0),
        (state(output=(0, 0, 0), frequency_penalty=0.4), 1),
        (state(output=(0, 0), frequency_penalty=0.4), 0),
        (state(prompt=(0,), repetition_penalty=2.5), 1),
        (state(output=(0,), repetition_penalty=2.5), 1),
        (state(prompt=(0,), repetition_penalty=1.5), 0),
        (state(prompt=(999,), repetition_penalty=2.0), 0),
        (state(eos=(0,), min_tokens=1), 1),
        (state(eos=(0,), stop_token_ids=(1,), min_tokens=2, output=(4,)), 2),
        (state(eos=(0,), min_tokens=1, output=(4,)), 0),
    ],
)
def test_options_change_the_greedy_choice(made: SamplingState, expected: int) -> None:
    assert choose(made) == expected


def test_repetition_penalty_makes_unlikely_tokens_less_likely_too() -> None:
    assert choose(state(prompt=(0,), repetition_penalty=2.0), [-1.0, -1.5]) == 1


@pytest.mark.parametrize(
    ("options", "possible"),
    [
        ({}, {0, 1, 2, 3, 4, 5}),
        ({"top_k": 2}, {0, 1}),
        ({"top_k": 1}, {0}),
        ({"top_k": 999}, {0, 1, 2, 3, 4, 5}),
        ({"top_k": -1}, {0, 1, 2, 3, 4, 5}),
        ({"top_p": 0.6}, {0}),
        ({"top_p": 0.65}, {0, 1}),
        ({"top_p": 1e-6}, {0}),
        ({"min_p": 0.3}, {0, 1}),
        ({"min_p": 1.0}, {0}),
        ({"top_k": 4, "top_p": 0.9, "min_p": 0.01}, {0, 1, 2}),
        ({"temperature": 0.01}, {0}),
    ],
)
def test_sampling_draws_all_tokens_that_the_options_leave_and_no_other(options: dict[str, Any], possible: set[int]) -> None:
    assert set(drawn(3000, **options)) == possible


@pytest.mark.parametrize("options", [{}, {"top_p": 0.999}, {"temperature": 2.0}], ids=["plain", "sorted", "hot"])
def test_tokens_are_drawn_in_proportion_to_their_probabilities(options: dict[str, Any]) -> None:
    counts = drawn(4000, **options)
    probs = (torch.tensor(LOGITS) / options.get("temperature", 1.0)).softmax(-1).tolist()
    for token, prob in enumerate(probs):
        assert abs(counts[token] / 4000 - prob) < 4 * math.sqrt(prob / 4000) + 1e-3


@pytest.mark.parametrize("temperature", [5e-324, 1e-300, 1e-40, 10.0])
@pytest.mark.parametrize(
    ("options", "logits"),
    [
        ({}, LOGITS),
        ({"top_p": 5e-324, "min_p": 5e-324}, LOGITS),
        ({"repetition_penalty": 0.01, "prompt": (0, 1)}, LOGITS),
        ({"min_tokens": 1, "eos": tuple(range(6))}, LOGITS),
        ({"top_k": 2, "top_p": 0.5, "min_p": 1.0}, [math.nan] * 6),
        ({}, [math.inf, -math.inf, math.nan, 0.0, 0.0, 0.0]),
        ({}, [-math.inf] * 6),
        ({}, [3e38, -3e38, 0.0, 0.0, 0.0, 0.0]),
    ],
    ids=str,
)
def test_nothing_gives_a_token_outside_the_vocabulary(temperature: float, options: dict[str, Any], logits: list[float]) -> None:
    made = state(**options, temperature=temperature)
    for _ in range(20):
        assert 0 <= choose(made, logits) < 6


def test_a_temperature_near_zero_is_greedy() -> None:
    assert set(drawn(20, temperature=5e-324)) == {0}


def test_equal_seeds_repeat_and_others_differ() -> None:
    def draws(seed: int) -> list[int]:
        made = state(temperature=1.0, seed=seed)
        return [choose(made) for _ in range(30)]

    assert draws(1) == draws(1) != draws(2)
    assert draws(1) != draws(-1)


def test_neighbours_in_the_batch_change_no_choice() -> None:
    """Rows with every kind of option stand beside one another; each gets what it gets alone."""
    kinds: list[dict[str, Any]] = [
        {},
        {"temperature": 1.0, "seed": 1},
        {"temperature": 0.7, "seed": 2, "top_p": 0.8},
        {"temperature": 1.3, "seed": 3, "top_k": 3},
        {"temperature": 1.0, "seed": 4, "min_p": 0.1, "repetition_penalty": 1.3, "prompt": (0, 1)},
        {"presence_penalty": 1.0, "output": (0,)},
        {"logit_bias": {2: 5.0}, "logprobs": 2},
    ]
    logits = torch.randn(len(kinds), 50, generator=torch.Generator().manual_seed(0))
    together = [state(**kind) for kind in kinds]
    alone = [state(**kind) for kind in kinds]
    for _ in range(5):
        expected = [sample(logits[row : row + 1], [made]).token_ids[0] for row, made in enumerate(alone)]
        assert sample(logits, together).token_ids == expected


def test_a_state_made_with_an_answer_draws_on_where_the_first_one_stopped() -> None:
    whole = state(temperature=1.0, seed=9)
    tokens = []
    for _ in range(12):
        tokens.append(choose(whole))
        whole.append(tokens[-1])
    resumed = state(temperature=1.0, seed=9, output=tuple(tokens[:7]))
    assert [choose(resumed) for _ in range(5)] == tokens[7:]


def test_penalties_follow_appended_tokens() -> None:
    made = state(presence_penalty=1.5)
    assert choose(made) == 0
    made.append(0)
    assert choose(made) == 1


def test_logprobs_are_the_models_own_and_sorted() -> None:
    expected = torch.tensor(LOGITS).log_softmax(-1)
    made = [state(logprobs=2, logit_bias={5: 20.0}), state(logprobs=0), state()]
    sampled = sample(torch.tensor([LOGITS] * 3), made)
    biased, own, none = sampled.logprobs
    assert sampled.token_ids == [5, 0, 0]
    assert biased is not None
    assert own is not None
    assert none is None
    assert biased.logprob == pytest.approx(float(expected[5]), abs=1e-5)
    assert [token for token, _ in biased.top] == [0, 1]
    assert [value for _, value in biased.top] == pytest.approx(expected[:2].tolist(), abs=1e-5)
    assert (own.token_id, own.top) == (0, ())


def test_logits_are_left_as_they_were() -> None:
    logits = torch.tensor([LOGITS])
    sample(logits, [state(logit_bias={0: -3.0}, temperature=0.5, top_p=0.5, repetition_penalty=2.0, prompt=(1,))])
    assert logits.tolist() == [LOGITS]
