"""A model family on the bench: processor and model of a plugin module that need not be installed, and media to feed them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from types import ModuleType, TracebackType
from typing import TYPE_CHECKING, Any, Final, NamedTuple, Self

import numpy as np
import pluggy

from inset import builtin, hookspecs
from inset.checkpoint import Checkpoint, load_checkpoint
from inset.config import MediaConfig, ModelConfig
from inset.identity import JSON
from inset.inputs import MODALITIES, ProcessedPrompt
from inset.media.executor import MediaExecutor
from inset.media.ref import MediaRef
from inset.processing.inputs import ProcessorInputs
from inset.processing.registry import BuiltProcessor, build_processor
from inset.registry import ModelRegistry, Owner, ProcessorRegistry

if TYPE_CHECKING:
    import pytest

    from inset.cache.base import ProcessorCacheFront
    from inset.modeling.interfaces import ModelAdapter
    from inset.processing.processor import MultiModalProcessor

__all__ = ["NUM_SIZES", "DecodeCounter", "FamilyBench", "Item", "Prompter", "make_sample_media"]

NUM_SIZES: Final = 4
"""Sample media whose numbers differ by a multiple of this have one size and another content."""

_SIZES: Final = ((80, 60), (47, 33), (90, 24), (56, 56))


class Item(NamedTuple):
    """One item of a prompt: which modality, and which of the sample media."""

    modality: str
    number: int


class FamilyBench:
    """Builds what a plugin module registers, for one checkpoint; a context manager that owns the threads which decode.

    Args:
        plugin: The module with the hook implementations.
        folder: The checkpoint.
    """

    def __init__(self, plugin: ModuleType, folder: Path) -> None:
        self.checkpoint = load_checkpoint(folder)
        self.pool = MediaExecutor(image_threads=2, video_threads=2)
        self._hooks = pluggy.PluginManager(hookspecs.PROJECT)
        self._hooks.add_hookspecs(hookspecs)
        self._hooks.register(builtin)
        self._hooks.register(plugin)

    def build(
        self,
        *,
        cache: ProcessorCacheFront | None = None,
        version: str = "1.0",
        checkpoint: Checkpoint | None = None,
        mm_processor_kwargs: Mapping[str, JSON] | None = None,
        media_io_kwargs: Mapping[str, Mapping[str, JSON]] | None = None,
    ) -> BuiltProcessor:
        """Returns the processor of the checkpoint's model_type, as if the plugin came from a distribution of that version."""
        registry = ProcessorRegistry()
        registry.owner = Owner("family-on-the-bench", "family-on-the-bench", version)
        self._hooks.hook.register_processors(registry=registry)
        checkpoint = checkpoint or self.checkpoint
        factories = {modality: self._hooks.hook.get_media_io(modality=modality, info=checkpoint) for modality in MODALITIES}
        return build_processor(
            registry,
            checkpoint,
            media_io_factories=factories,
            pool=self.pool,
            cache=cache,
            model_config=ModelConfig(mm_processor_kwargs=mm_processor_kwargs or {}),
            media_config=MediaConfig(media_io_kwargs=media_io_kwargs or {}),
        )

    def load_adapter(self) -> ModelAdapter:
        """Returns the adapter of the checkpoint's architecture, with its weights, in float32 on the CPU."""
        import torch

        from inset.modeling.attention import register_paged_attention
        from inset.modeling.interfaces import LoadOptions
        from inset.modeling.loading import load_adapter

        registry = ModelRegistry()
        self._hooks.hook.register_models(registry=registry)
        options = LoadOptions(torch.device("cpu"), torch.float32, register_paged_attention())
        return load_adapter(registry.get(self.checkpoint.architecture).adapter, self.checkpoint, options)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.pool.close()


class Prompter:
    """Makes requests with sample media for one processor.

    Args:
        processor: The processor.
        make_media: Takes modality and number of an item, and returns its encoded bytes.
    """

    def __init__(self, processor: MultiModalProcessor, make_media: Callable[[str, int], bytes]) -> None:
        self.processor = processor
        self._make_media = make_media

    def make_ref(self, item: Item) -> MediaRef[Any]:
        """Returns a fresh reference to an item, not decoded."""
        return self.processor.info.get_media_io(item.modality).load_bytes_ref(self._make_media(*item))

    def make_text(self, items: Sequence[Item]) -> str:
        """Returns a prompt with the marker of each item, in order, and text between them."""
        counts = dict.fromkeys(MODALITIES, 0)
        parts = ["See"]
        for item in items:
            parts.append(self.processor.info.get_placeholder_text(item.modality, counts[item.modality]))
            counts[item.modality] += 1
        return " and ".join(parts) + "?"

    def make_inputs(self, items: Sequence[Item], *, refs: Sequence[MediaRef[Any]] | None = None, **given: Any) -> ProcessorInputs:
        """Returns a request with these items; `given` goes to `ProcessorInputs`."""
        refs = refs or [self.make_ref(item) for item in items]
        mm_data: dict[str, object] = {}
        for modality in dict.fromkeys(item.modality for item in items):
            mm_data[modality] = [ref for item, ref in zip(items, refs, strict=True) if item.modality == modality]
        return ProcessorInputs(**{"request_id": "bench", "prompt": self.make_text(items), "mm_data": mm_data, **given})

    def apply(self, items: Sequence[Item], **given: Any) -> ProcessedPrompt:
        """Processes a request with these items."""
        return self.processor.apply(self.make_inputs(items, **given))


class DecodeCounter:
    """Counts what the decoders of a processor decode.

    Attributes:
        count: How many items so far.
    """

    def __init__(self, prompter: Prompter, monkeypatch: pytest.MonkeyPatch) -> None:
        self.count = 0
        info = prompter.processor.info
        for modality in info.get_supported_mm_limits():
            media_io = info.get_media_io(modality)
            monkeypatch.setattr(media_io, "load_bytes", self._counted(media_io.load_bytes))

    def _counted(self, load_bytes: Any) -> Any:
        def counted(*given: Any) -> Any:
            self.count += 1
            return load_bytes(*given)

        return counted


def make_sample_media(modality: str, number: int) -> bytes:
    """Returns small encoded media of one of four sizes; see `NUM_SIZES`.

    An image is a PNG of noise, a video eight to eleven MPEG-4 frames, audio a second of noise as WAV.
    """
    from inset.testing.sample_clips import encode_sound, make_video
    from inset.testing.sample_images import encode_image

    width, height = _SIZES[number % NUM_SIZES]
    noise = np.random.default_rng(number)
    if modality == "image":
        return encode_image(noise.integers(0, 256, (height, width, 3), dtype=np.uint8), "PNG")
    if modality == "video":  # the frames of one size differ in which way is up
        turned = 180 * (number // NUM_SIZES % 2)
        return make_video(8 + number % NUM_SIZES, width=width // 2 * 2, height=height // 2 * 2, rotation=turned)
    num_samples = 16_000 + 1_000 * (number % NUM_SIZES)
    return encode_sound(noise.uniform(-0.5, 0.5, (1, num_samples)).astype(np.float32))
