from __future__ import annotations

import torch

from inset.modeling.interfaces import AttentionLayerSpec
from inset.worker.decode_workspace import DecodeWorkspace
from inset.worker.kv_cache import PagedKVCache, bytes_per_token

LAYERS = (AttentionLayerSpec(2, 4), AttentionLayerSpec(1, 8))
TOKEN_BYTES = bytes_per_token(LAYERS, torch.float32)
BLOCKS = {"a": (3, 1), "b": (0, 2), "c": (4, 5)}


def make_cache() -> PagedKVCache:
    cache = PagedKVCache(LAYERS, num_blocks=200, block_size=16, dtype=torch.float32, device=torch.device("cpu"))
    for layer_idx, spec in enumerate(LAYERS):
        values = torch.randn(200 * 16, spec.num_kv_heads, spec.head_dim)
        cache.write(layer_idx, torch.arange(200 * 16), values, -values)
    return cache


def make_workspace(cache: PagedKVCache, *, max_num_rows: int = 4, max_length: int = 4096, max_bytes: int = 1 << 24) -> DecodeWorkspace:
    return DecodeWorkspace(cache, max_num_rows=max_num_rows, max_length=max_length, max_bytes=max_bytes)


def test_a_row_holds_what_the_blocks_hold() -> None:
    cache = make_cache()
    workspace = make_workspace(cache)
    rows = workspace.assign_rows({"a": 21}, BLOCKS)
    for layer_idx in range(len(LAYERS)):
        expected = cache.gather(layer_idx, torch.tensor(BLOCKS["a"]))
        view = workspace.view(layer_idx, slice(rows["a"], rows["a"] + 1), 20)
        torch.testing.assert_close(view.key.permute(2, 0, 1), expected.key[:20])
        torch.testing.assert_close(view.value.transpose(0, 1), expected.value[:20])


def test_the_newest_position_is_written_to_each_row() -> None:
    workspace = make_workspace(make_cache())
    rows = workspace.assign_rows({"a": 21, "b": 18}, BLOCKS)
    new = torch.randn(2, 2, 4)
    workspace.write(0, torch.tensor([rows["a"], rows["b"]]), torch.tensor([20, 17]), new, -new)
    for index, (name, length) in enumerate((("a", 21), ("b", 18))):
        view = workspace.view(0, slice(rows[name], rows[name] + 1), length)
        assert torch.equal(view.key[:, :, -1], new[index])
        assert torch.equal(view.value[:, -1], -new[index])


def test_a_released_row_serves_the_next_sequence_from_its_own_blocks() -> None:
    cache = make_cache()
    workspace = make_workspace(cache, max_num_rows=1)
    assert workspace.assign_rows({"a": 21, "b": 18}, BLOCKS) == {"a": 0}
    workspace.release("a")
    workspace.release("a")
    assert workspace.assign_rows({"b": 18}, BLOCKS) == {"b": 0}
    expected = cache.gather(0, torch.tensor(BLOCKS["b"])).key[:17]
    torch.testing.assert_close(workspace.view(0, slice(0, 1), 17).key.permute(2, 0, 1), expected)


def test_rows_are_bounded_in_bytes() -> None:
    workspace = make_workspace(make_cache(), max_bytes=2 * 1024 * TOKEN_BYTES)
    assert workspace.assign_rows({"a": 21, "b": 18, "c": 20}, BLOCKS) == {"a": 0, "b": 1}


def test_without_bytes_there_are_no_rows() -> None:
    workspace = make_workspace(make_cache(), max_bytes=0)
    assert workspace.assign_rows({"a": 21}, BLOCKS) == {}
    assert workspace.capacity == 0


def test_capacity_grows_while_all_sequences_of_the_step_still_find_a_row() -> None:
    long_blocks = tuple(range(100))
    workspace = make_workspace(make_cache(), max_bytes=2 * 2048 * TOKEN_BYTES)
    assert workspace.assign_rows({"a": 21, "c": 20}, BLOCKS) == {"a": 0, "c": 1}
    assert workspace.assign_rows({"a": 22, "b": 1500}, {**BLOCKS, "b": long_blocks}) == {"a": 0, "b": 1}
    assert (workspace.capacity, workspace.num_rows_in_use) == (2048, 2)


def test_a_sequence_that_would_cost_others_their_rows_gets_none() -> None:
    workspace = make_workspace(make_cache(), max_bytes=3 * 1024 * TOKEN_BYTES)
    rows = workspace.assign_rows({"a": 21, "b": 1500}, {**BLOCKS, "b": tuple(range(100))})
    assert (rows, workspace.capacity) == ({"a": 0}, 1024)
