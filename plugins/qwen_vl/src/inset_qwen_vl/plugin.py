"""The hook implementations of this package; imports nothing but the marker."""

from __future__ import annotations

from typing import TYPE_CHECKING

from inset import hookimpl

if TYPE_CHECKING:
    from inset.api import Checkpoint, MediaIOFactory, ModelRegistry, ProcessorRegistry


@hookimpl
def register_processors(registry: ProcessorRegistry) -> None:
    """Adds Qwen2-VL, Qwen2.5-VL and Qwen3-VL."""
    for model_type, family in (("qwen2_vl", "Qwen2VL"), ("qwen2_5_vl", "Qwen25VL"), ("qwen3_vl", "Qwen3VL")):
        registry.register(
            model_type,
            processor="inset_qwen_vl.processing:QwenVLProcessor",
            info=f"inset_qwen_vl.info:{family}ProcessingInfo",
            dummy_inputs="inset_qwen_vl.largest:QwenVLDummyInputs",
        )


@hookimpl
def register_models(registry: ModelRegistry) -> None:
    """Adds the adapters of all three architectures."""
    for architecture, family in (("Qwen2VL", "Qwen2VL"), ("Qwen2_5_VL", "Qwen25VL"), ("Qwen3VL", "Qwen3VL")):
        registry.register(f"{architecture}ForConditionalGeneration", adapter=f"inset_qwen_vl.model:{family}Adapter")


@hookimpl
def get_media_io(modality: str, info: Checkpoint) -> MediaIOFactory | None:
    """Returns a decoder that samples videos as the family does; images are left to the core."""
    if modality != "video" or info.model_type not in ("qwen2_vl", "qwen2_5_vl", "qwen3_vl"):
        return None
    from inset_qwen_vl.media import video_io_factory

    return video_io_factory(info)
