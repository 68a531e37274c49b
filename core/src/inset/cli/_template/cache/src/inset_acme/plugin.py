"""The hook implementations of this package; imports nothing but the marker."""

from __future__ import annotations

from typing import TYPE_CHECKING

from inset import hookimpl

if TYPE_CHECKING:
    from inset.api import ProcessorCacheRegistry


@hookimpl
def register_processor_caches(registry: ProcessorCacheRegistry) -> None:
    """Adds the type; the operator chooses it with ``--mm-processor-cache-type acme``."""
    registry.register(
        "acme",
        front="inset_acme.cache:AcmeCacheFront",
        engine="inset_acme.cache:AcmeCacheEngine",
        supports_multiple_fronts=True,  # the engine half keeps nothing of one front end
    )
