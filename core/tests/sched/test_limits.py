from __future__ import annotations

from collections.abc import Callable

import pytest

from inset.errors import ConfigError
from inset.sched.limits import SchedulerLimits


@pytest.mark.parametrize("name", ["max_model_len", "max_num_seqs", "max_num_batched_tokens", "num_blocks", "block_size"])
def test_a_limit_of_zero_is_refused_by_name(name: str, make_limits: Callable[..., SchedulerLimits]) -> None:
    with pytest.raises(ConfigError, match=name):
        make_limits(**{name: 0})


@pytest.mark.parametrize("name", ["encoder_compute_budget", "encoder_cache_size"])
def test_the_encoder_may_have_nothing_but_not_less(name: str, make_limits: Callable[..., SchedulerLimits]) -> None:
    make_limits(**{name: 0})
    with pytest.raises(ConfigError, match=name):
        make_limits(**{name: -1})


def test_a_request_is_as_long_as_the_context_or_the_blocks_allow(make_limits: Callable[..., SchedulerLimits]) -> None:
    assert make_limits(max_model_len=100, num_blocks=10, block_size=4).max_request_tokens == 40
    assert make_limits(max_model_len=30, num_blocks=10, block_size=4).max_request_tokens == 30


def test_no_more_requests_run_than_a_step_has_tokens(make_limits: Callable[..., SchedulerLimits]) -> None:
    assert make_limits(max_num_seqs=8, max_num_batched_tokens=5).max_num_running == 5
