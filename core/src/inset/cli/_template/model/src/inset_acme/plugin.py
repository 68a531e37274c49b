"""The hook implementations of this package; imports nothing but the marker."""

from __future__ import annotations

from typing import TYPE_CHECKING

from inset import hookimpl

if TYPE_CHECKING:
    from inset.api import ModelRegistry, ProcessorRegistry


@hookimpl
def register_processors(registry: ProcessorRegistry) -> None:
    """Adds the processor of this model_type."""
    rooms = "inset_acme.processing"
    registry.register(
        "acme",
        processor=f"{rooms}:AcmeProcessor",
        info=f"{rooms}:AcmeProcessingInfo",
        dummy_inputs=f"{rooms}:AcmeDummyInputs",
    )


@hookimpl
def register_models(registry: ModelRegistry) -> None:
    """Adds the adapter of this architecture."""
    registry.register("AcmeForConditionalGeneration", adapter="inset_acme.model:AcmeAdapter")
