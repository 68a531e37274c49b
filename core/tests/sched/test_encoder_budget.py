from __future__ import annotations

from typing import Any

import pytest

from inset.errors import ConfigError
from inset.sched.encoder_budget import EncoderBudget, compute_mm_encoder_budget


@pytest.mark.parametrize(
    ("changes", "budget"),
    [
        ({}, (2048, 2048)),
        ({"max_item_embeds": 3000}, (3000, 3000)),
        ({"max_item_embeds": 9000}, (4096, 4096)),
        ({"max_item_embeds": 0}, (0, 0)),
        ({"max_item_embeds": 0, "encoder_compute_budget": 100, "encoder_cache_size": 200}, (100, 200)),
        ({"max_item_embeds": 0, "accepts_embeds": True}, (0, 4096)),
        ({"max_item_embeds": 0, "accepts_embeds": True, "encoder_cache_size": 200}, (0, 200)),
        ({"accepts_embeds": True}, (2048, 4096)),
        ({"accepts_embeds": True, "max_model_len": 512}, (2048, 2048)),
        ({"encoder_compute_budget": 100}, (100, 2048)),
        ({"encoder_cache_size": 9000, "max_item_embeds": 3000}, (3000, 9000)),
    ],
)
def test_limits_default_to_the_step_or_the_largest_item_that_the_context_admits(changes: dict[str, Any], budget: tuple[int, int]) -> None:
    values = {"max_num_batched_tokens": 2048, "max_model_len": 4096, "max_item_embeds": 576, **changes}
    assert compute_mm_encoder_budget(**values) == EncoderBudget(*budget)


@pytest.mark.parametrize("option", ["encoder_compute_budget", "encoder_cache_size"])
def test_a_limit_below_one_is_refused_with_the_name_of_its_option(option: str) -> None:
    values: dict[str, Any] = {option: 0}
    with pytest.raises(ConfigError, match="--" + option.replace("_", "-")):
        compute_mm_encoder_budget(max_num_batched_tokens=8, max_model_len=8, max_item_embeds=8, **values)
