"""The hook implementations of this package; imports nothing but the marker."""

from __future__ import annotations

from typing import TYPE_CHECKING

from inset import hookimpl

if TYPE_CHECKING:
    from inset.api import ModelRegistry, ProcessorRegistry


@hookimpl
def register_processors(registry: ProcessorRegistry) -> None:
    """Adds LLaVA 1.5 and LLaVA-NeXT."""
    rooms = "inset_llava.processing"
    registry.register(
        "llava",
        processor=f"{rooms}:LlavaProcessor",
        info=f"{rooms}:LlavaProcessingInfo",
        dummy_inputs=f"{rooms}:LlavaDummyInputs",
    )
    registry.register(
        "llava_next",
        processor=f"{rooms}:LlavaNextProcessor",
        info=f"{rooms}:LlavaNextProcessingInfo",
        dummy_inputs=f"{rooms}:LlavaDummyInputs",
    )


@hookimpl
def register_models(registry: ModelRegistry) -> None:
    """Adds the adapters of both architectures."""
    registry.register("LlavaForConditionalGeneration", adapter="inset_llava.model:LlavaAdapter")
    registry.register("LlavaNextForConditionalGeneration", adapter="inset_llava.model:LlavaNextAdapter")
