"""The hook implementations of this package; imports nothing but the marker."""

from __future__ import annotations

from typing import TYPE_CHECKING

from inset import hookimpl

if TYPE_CHECKING:
    from inset.api import MediaConnectorRegistry


@hookimpl
def register_media_connectors(registry: MediaConnectorRegistry) -> None:
    """Adds the connectors of this package; each serves once the operator names it."""
    registry.register("archive", factory="inset_connectors.archive:ArchiveConnector", schemes=("zip+*", "tar+*"))
    registry.register("cached", factory="inset_connectors.cached:CachedConnector", schemes=("cached+*",))
    registry.register("hf-cache", factory="inset_connectors.hub_cache:HubCacheConnector", schemes=("hf-cache",))
