"""How many KV blocks there is room for."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Final

import torch

from inset.errors import ConfigError
from inset.inputs import ItemTensors
from inset.modeling.forward_context import forward_context
from inset.modeling.interfaces import ModelAdapter
from inset.worker.kv_cache import PagedKVCache, bytes_per_token
from inset.worker.step_attention import SequenceSlice, StepAttention

__all__ = ["determine_num_blocks", "run_largest_step"]

_CPU_SHARE: Final = 0.4
_CUDA_SHARE: Final = 0.9


def determine_num_blocks(
    adapter: ModelAdapter,
    *,
    device: torch.device,
    dtype: torch.dtype,
    block_size: int,
    max_num_seqs: int,
    max_model_len: int,
    kv_cache_bytes: int | None = None,
    run_largest: Callable[[], None] | None = None,
) -> int:
    """Returns how many KV blocks to make.

    Without `kv_cache_bytes` it is what `max_num_seqs` requests of full length can use, or what the memory allows if that is less: on a CPU
    two fifths of what is available, on a GPU nine tenths of its memory less what weights, the largest step and other processes take.

    Args:
        adapter: The loaded model.
        device: Where it runs.
        dtype: Type of keys and values.
        block_size: Positions in one block.
        max_num_seqs: Most requests in one step.
        max_model_len: Longest request, in tokens.
        kv_cache_bytes: Memory for keys and values, in bytes; None measures.
        run_largest: Runs the largest step that can occur, for the measurement.

    Raises:
        ConfigError: There is no room for one request of full length; the numbers are named.
    """
    block_bytes = block_size * bytes_per_token(adapter.attention_layers, dtype)
    blocks_per_request = -(-max_model_len // block_size)
    if kv_cache_bytes is None:
        if run_largest is not None:
            run_largest()
        num_blocks = min(_available_bytes(device) // block_bytes, max_num_seqs * blocks_per_request)
    else:
        num_blocks = kv_cache_bytes // block_bytes
    if num_blocks < blocks_per_request:
        raise ConfigError(
            f"A request of max_model_len={max_model_len} tokens needs {blocks_per_request * block_bytes} bytes of KV cache, and there is "
            f"room for {num_blocks * block_bytes}. Lower --max-model-len to {num_blocks * block_size} or raise --kv-cache-bytes."
        )
    return num_blocks


@torch.inference_mode()
def run_largest_step(
    adapter: ModelAdapter,
    batches: Sequence[tuple[str, Sequence[ItemTensors]]],
    *,
    num_tokens: int,
    num_answers: int,
    num_cached_embeds: int,
    device: torch.device,
    dtype: torch.dtype,
) -> None:
    """Does what a step does at most, beside a full encoder cache, so that peak memory can be read.

    Args:
        adapter: The loaded model.
        batches: Items of one modality that the encoder takes at once, in (modality, items) pairs.
        num_tokens: Positions of one prompt.
        num_answers: Sequences that get their next token.
        num_cached_embeds: Embeds that the encoder cache holds meanwhile.
        device: Where it runs.
        dtype: Type of activations, keys and values.

    Raises:
        ConfigError: It does not fit into the memory of the device.
    """
    try:
        encoder_cache = torch.zeros((num_cached_embeds, adapter.embed_size), dtype=dtype, device=device)
        for modality, items in batches:
            adapter.encode(modality, [{name: torch.tensor(array, device=device) for name, array in item.items()} for item in items])
        block_size = 16
        num_blocks = -(-num_tokens // block_size)
        cache = PagedKVCache(adapter.attention_layers, num_blocks=num_blocks, block_size=block_size, dtype=dtype, device=device)
        attention = StepAttention([SequenceSlice(0, num_tokens, range(num_blocks))], cache, None)
        input_ids = torch.zeros(num_tokens, dtype=torch.int64, device=device)
        positions = adapter.get_positions(input_ids.tolist(), ()).positions.to(device)
        with forward_context(attention):
            hidden_states = adapter.forward(adapter.embed_input_ids(input_ids)[None], positions)
        adapter.compute_logits(hidden_states[-num_answers:])
        del encoder_cache
    except torch.OutOfMemoryError as error:
        raise ConfigError(
            "The largest items that the options allow, or the longest step, do not fit into the memory of the device beside the weights. "
            "Lower --max-num-batched-tokens, --encoder-compute-budget or the processor's largest size, or set --kv-cache-bytes."
        ) from error


def _available_bytes(device: torch.device) -> int:
    if device.type == "cuda":
        torch.cuda.empty_cache()
        free, total = torch.cuda.mem_get_info(device)
        held_by_others = total - free - torch.cuda.memory_reserved(device)
        return int(total * _CUDA_SHARE) - torch.cuda.max_memory_reserved(device) - held_by_others
    return int(min(_host_bytes(), _control_group_bytes()) * _CPU_SHARE)


def _host_bytes() -> int:
    info = Path("/proc/meminfo")
    if info.is_file():
        fields = dict(line.split(":", 1) for line in info.read_text("ascii").splitlines())
        return int(fields["MemAvailable"].split()[0]) * 1024
    return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") // 2


def _control_group_bytes() -> int:
    """Returns what the container's memory limit leaves, or a very large number where there is none."""
    folder = Path("/sys/fs/cgroup")
    try:
        limit = (folder / "memory.max").read_text("ascii").strip()
        used = int((folder / "memory.current").read_text("ascii"))
    except (OSError, ValueError):
        return 1 << 62
    return (1 << 62) if limit == "max" else max(int(limit) - used, 0)
