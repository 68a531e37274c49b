"""The hook implementations of this package; imports nothing but the marker."""

from __future__ import annotations

from typing import TYPE_CHECKING

from inset import hookimpl

if TYPE_CHECKING:
    from inset.api import CheckpointRegistry


@hookimpl
def register_checkpoints(registry: CheckpointRegistry) -> None:
    """Adds the checkpoints that this package ships."""
    for name in ("shapes-llava", "shapes-qwen-vl"):
        registry.register(name, package="inset_demo", folder=f"checkpoints/{name}")
