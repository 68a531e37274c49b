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
        batches = [("image", [{"values": torch.zeros(6, 8).numpy()}] * 2)]
        run_largest_step(adapter, batches, num_tokens=70, num_answers=4, num_cached_embeds=100, device=CPU, dtype=torch.float32)
        ran.append(True)

    assert count(adapter, run_largest=run_largest) == 4 * 7
    assert ran == [True]


def test_too_little_room_for_one_request_names_the_options(adapter: LinearAdapter) -> None:
    block_bytes = 16 * bytes_per_token(adapter.attention_layers, torch.float32)
    with pytest.raises(ConfigError, match=r"Lower --max-model-len to 96 or raise --kv-cache-bytes"):
        count(adapter, kv_cache_bytes=6 * block_bytes)


def test_a_step_that_does_not_fit_says_which_options_to_lower(adapter: LinearAdapter, monkeypatch: pytest.MonkeyPatch) -> None:
    def run_out(*_: object) -> None:
        raise torch.OutOfMemoryError

    monkeypatch.setattr(adapter, "encode", run_out)
    batches = [("image", [{"values": torch.zeros(6, 8).numpy()}])]
    with pytest.raises(ConfigError, match="--encoder-compute-budget"):
        run_largest_step(adapter, batches, num_tokens=70, num_answers=4, num_cached_embeds=100, device=CPU, dtype=torch.float32)
