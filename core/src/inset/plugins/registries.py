"""The registries of one core, filled by the hooks of the same names."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, fields
from typing import Any, NamedTuple

from inset.registry import (
    CheckpointRegistry,
    MediaConnectorRegistry,
    ModelRegistry,
    Owner,
    ProcessorCacheRegistry,
    ProcessorRegistry,
    Registry,
)

__all__ = ["Registries", "Slot"]


class Slot(NamedTuple):
    """One registry with the hook that fills it."""

    hook: str
    registry: Registry[Any]


@dataclass(frozen=True, slots=True)
class Registries:
    """Everything that plugins have registered in one core.

    Attributes:
        processors: model_type -> processor, processing info, dummy inputs.
        models: Architecture -> model adapter.
        media_connectors: Name -> media connector and its schemes.
        processor_caches: Cache type -> its two halves.
        checkpoints: Short name -> folder of a shipped checkpoint.
    """

    processors: ProcessorRegistry = field(default_factory=ProcessorRegistry)
    models: ModelRegistry = field(default_factory=ModelRegistry)
    media_connectors: MediaConnectorRegistry = field(default_factory=MediaConnectorRegistry)
    processor_caches: ProcessorCacheRegistry = field(default_factory=ProcessorCacheRegistry)
    checkpoints: CheckpointRegistry = field(default_factory=CheckpointRegistry)

    def __iter__(self) -> Iterator[Slot]:
        """Yields each registry with its hook: field ``models`` is filled by ``register_models``."""
        for item in fields(self):
            yield Slot(f"register_{item.name}", getattr(self, item.name))

    def mark(self, owner: Owner | None) -> None:
        """Sets whose registrations come next."""
        for _, registry in self:
            registry.owner = owner

    def merge(self, staged: Registries) -> None:
        """Takes over what one plugin has registered.

        Raises:
            DuplicateNameError: One of its names is taken.
        """
        for mine, theirs in zip(self, staged, strict=True):
            mine.registry.merge(theirs.registry)
