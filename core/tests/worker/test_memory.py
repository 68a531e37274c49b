from __future__ import annotations

from typing import Any

import pytest
import torch

from inset.errors import ConfigError
from inset.testing.linear_model import LinearAdapter
from inset.worker.kv_cache import bytes_per_token
from inset.worker.memory import determine_num_blocks, run_largest_step

CPU = torch.device("cpu")


def count(adapter: LinearAdapter, **options: Any) -> int:
    defaults: dict[str, Any] = {"max_num_seqs": 4, "max_model_len": 100}
    return determine_num_blocks(adapter, device=CPU, dtype=torch.float32, block_size=16, **{**defaults, **options})


def test_given_bytes_are_divided_by_the_size_of_a_block(adapter: LinearAdapter) -> None:
    block_bytes = 16 * bytes_per_token(adapter.attention_layers, torch.float32)
    assert block_bytes == 16 * 2 * 2 * 2 * 8 * 4
    assert count(adapter, kv_cache_bytes=10 * block_bytes + 1) == 10


def test_measured_room_is_no_more_than_all_sequences_can_use(adapter: LinearAdapter) -> None:
    ran: list[bool] = []

    def run_largest() -> None:
        items = [("image", {"values": torch.zeros(6, 8).numpy()})]
        run_largest_step(adapter, items, num_tokens=70, device=CPU, dtype=torch.float32)
        ran.append(True)

    assert count(adapter, run_largest=run_largest) == 4 * 7
    assert ran == [True]


def test_too_little_room_for_one_request_names_the_options(adapter: LinearAdapter) -> None:
    block_bytes = 16 * bytes_per_token(adapter.attention_layers, torch.float32)
    with pytest.raises(ConfigError, match=r"Lower --max-model-len to 96 or raise --kv-cache-bytes"):
        count(adapter, kv_cache_bytes=6 * block_bytes)
