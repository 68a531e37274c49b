"""Compares paged attention with the module's own at load, so that a model whose attention is another kind never serves a wrong answer."""

from __future__ import annotations

from typing import Final

import torch

from inset.errors import ConfigError
from inset.modeling.forward_context import forward_context
from inset.modeling.interfaces import ModelAdapter
from inset.worker.decode_workspace import DecodeWorkspace
from inset.worker.kv_cache import PagedKVCache
from inset.worker.step_attention import SequenceSlice, StepAttention

__all__ = ["check_paged_attention"]

_BLOCK_SIZE: Final = 16
_BLOCKS: Final = (2, 0, 3, 1)
# Two chunks of a prompt of 48 tokens, and its last token as a decode step.
_CHUNKS: Final = (29, 18, 1)
_TOLERANCE: Final = {torch.float32: 1e-3, torch.float16: 2e-2, torch.bfloat16: 1e-1}


@torch.inference_mode()
def check_paged_attention(adapter: ModelAdapter, *, device: torch.device, dtype: torch.dtype) -> None:
    """Runs a short text prompt in chunks through paged attention, and whole through the module's own.

    Raises:
        ConfigError: The logits differ, or the model asks for attention that is not served; the model is named.
    """
    name = type(adapter).__name__
    input_ids = torch.arange(1, sum(_CHUNKS) + 1, device=device)
    try:
        plain = adapter.plain_forward(input_ids).float()
        paged = torch.cat(_run_chunks(adapter, input_ids, dtype)).float()
    except ConfigError as error:
        raise ConfigError(f"{name} cannot be served: {error.message}") from error
    difference = float((paged - plain).abs().max())
    if not difference <= _TOLERANCE[dtype] * float(plain.abs().max()):
        raise ConfigError(
            f"{name} cannot be served: with paged attention its logits differ from its module's by up to {difference:.3g}. "
            "Its attention is of a kind that is not supported; choose another checkpoint."
        )


def _run_chunks(adapter: ModelAdapter, input_ids: torch.Tensor, dtype: torch.dtype) -> list[torch.Tensor]:
    device = input_ids.device
    cache = PagedKVCache(adapter.attention_layers, num_blocks=len(_BLOCKS), block_size=_BLOCK_SIZE, dtype=dtype, device=device)
    workspace_bytes = 1 << 26 if device.type == "cpu" else 0
    workspace = DecodeWorkspace(cache, max_num_rows=1, max_length=len(input_ids), max_bytes=workspace_bytes)
    positions = adapter.get_positions(input_ids.tolist(), ()).positions.to(device)
    logits: list[torch.Tensor] = []
    start = 0
    for count in _CHUNKS:
        stop = start + count
        row = workspace.assign_rows({"check": stop}, {"check": _BLOCKS}).get("check") if count == 1 else None
        attention = StepAttention([SequenceSlice(start, count, _BLOCKS, row)], cache, workspace)
        with forward_context(attention):
            hidden_states = adapter.forward(adapter.embed_input_ids(input_ids[start:stop])[None], positions[:, start:stop])
        logits.append(adapter.compute_logits(hidden_states))
        start = stop
    return logits
