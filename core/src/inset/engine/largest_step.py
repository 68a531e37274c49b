"""The largest step that the options allow, for measuring what memory it leaves to the KV cache."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from typing import TYPE_CHECKING

from inset.media.executor import MediaExecutor
from inset.modeling.loading import resolve_device, resolve_dtype
from inset.processing.registry import build_processor
from inset.worker.memory import run_largest_step

if TYPE_CHECKING:
    from collections.abc import Sequence

    from inset.checkpoint import Checkpoint
    from inset.config import Configs
    from inset.engine.limits import EngineLimits
    from inset.inputs import ItemTensors
    from inset.modeling.interfaces import ModelAdapter
    from inset.plugins import PluginHost
    from inset.processing.registry import BuiltProcessor

__all__ = ["make_largest_step"]


def make_largest_step(
    configs: Configs, host: PluginHost, checkpoint: Checkpoint, adapter: ModelAdapter, *, limits: EngineLimits
) -> Callable[[], None]:
    """Returns what runs the largest step: of each modality as many of the largest items as encoders may make at once, and a prompt.

    Raises:
        InsetError: As `inset.processing.registry.build_processor`.
    """
    device = resolve_device(configs.model.device)
    with MediaExecutor(image_threads=1, video_threads=1) as pool:  # the family's interface asks for one; no thread is started
        built = build_processor(
            host.registries.processors,
            checkpoint,
            media_io_factories={},
            pool=pool,
            model_config=configs.model,
            media_config=configs.media,
        )
        batches = list(_largest_batches(built, limits.encoder_compute_budget))
    return partial(
        run_largest_step,
        adapter,
        batches,
        num_tokens=min(configs.engine.max_num_batched_tokens, limits.max_model_len),
        num_answers=configs.engine.max_num_seqs,
        num_cached_embeds=limits.encoder_cache_size,
        device=device,
        dtype=resolve_dtype(configs.model.dtype, device, checkpoint),
    )


def _largest_batches(built: BuiltProcessor, encoder_compute_budget: int) -> Iterator[tuple[str, Sequence[ItemTensors]]]:
    for modality, most in built.processor.info.get_mm_limits().items():
        if most:
            item = built.dummy_inputs.make_largest_item(built.processor, modality)
            yield modality, [item.tensors] * max(1, encoder_compute_budget // item.plan.num_embeds)
