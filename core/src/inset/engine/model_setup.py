"""From a checkpoint to an engine core that is ready to step; the one place in the engine that loads weights."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

import torch

from inset.engine.engine_core import EngineCore
from inset.engine.largest_step import make_largest_step
from inset.modeling.attention import register_paged_attention
from inset.modeling.interfaces import LoadOptions
from inset.modeling.loading import load_adapter, resolve_device, resolve_dtype
from inset.sched.limits import SchedulerLimits
from inset.sched.scheduler import Scheduler
from inset.worker.attention_check import check_paged_attention
from inset.worker.memory import determine_num_blocks
from inset.worker.model_runner import ModelRunner

if TYPE_CHECKING:
    from inset.cache.base import ProcessorCacheEngine
    from inset.checkpoint import Checkpoint
    from inset.config import Configs, EngineConfig
    from inset.engine.limits import EngineLimits
    from inset.plugins import PluginHost

__all__ = ["build_engine_core"]

logger = logging.getLogger(__name__)


def build_engine_core(
    configs: Configs, host: PluginHost, checkpoint: Checkpoint, *, limits: EngineLimits, cache: ProcessorCacheEngine | None
) -> EngineCore:
    """Loads the model and returns the engine core around it.

    Raises:
        ConfigError: The checkpoint cannot be served with these options.
        UnknownNameError: No plugin serves this architecture.
    """
    device = resolve_device(configs.model.device)
    dtype = resolve_dtype(configs.model.dtype, device, checkpoint)
    target = host.registries.models.get(checkpoint.architecture).adapter
    adapter = load_adapter(target, checkpoint, LoadOptions(device, dtype, register_paged_attention(), limits.max_model_len))
    check_paged_attention(adapter, device=device, dtype=dtype)
    engine = configs.engine
    num_blocks = determine_num_blocks(
        adapter,
        device=device,
        dtype=dtype,
        block_size=engine.block_size,
        max_model_len=limits.max_model_len,
        max_num_seqs=engine.max_num_seqs,
        kv_cache_bytes=engine.kv_cache_bytes,
        run_largest=make_largest_step(configs, host, checkpoint, adapter, limits=limits) if device.type == "cuda" else None,
    )
    runner = ModelRunner(
        adapter,
        device=device,
        dtype=dtype,
        block_size=engine.block_size,
        num_blocks=num_blocks,
        max_num_seqs=engine.max_num_seqs,
        max_model_len=limits.max_model_len,
    )
    logger.info("The model runs on %s in %s with %d KV blocks of %d tokens", device, dtype, num_blocks, engine.block_size)
    return EngineCore(Scheduler(_scheduler_limits(engine, limits, num_blocks=num_blocks)), runner, cache)


def _scheduler_limits(config: EngineConfig, limits: EngineLimits, *, num_blocks: int) -> SchedulerLimits:
    return SchedulerLimits(
        max_model_len=limits.max_model_len,
        max_num_seqs=config.max_num_seqs,
        max_num_batched_tokens=config.max_num_batched_tokens,
        num_blocks=num_blocks,
        block_size=config.block_size,
        encoder_compute_budget=limits.encoder_compute_budget,
        encoder_cache_size=limits.encoder_cache_size,
        enable_prefix_caching=config.enable_prefix_caching,
        enable_chunked_prefill=config.enable_chunked_prefill,
        disable_chunked_mm_input=config.disable_chunked_mm_input,
    )


def use_threads(num_threads: int) -> None:
    """Sets the torch threads of the calling thread; the limit belongs to each thread on its own."""
    torch.set_num_threads(num_threads)
