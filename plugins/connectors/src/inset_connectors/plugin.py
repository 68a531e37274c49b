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
    registry.register("az", factory="inset_connectors.object_store:AzureConnector", schemes=("az",), dials_itself=True)
    registry.register("cached", factory="inset_connectors.cached:CachedConnector", schemes=("cached+*",))
    registry.register("fsspec", factory="inset_connectors.filesystem:FilesystemConnector", schemes=("fsspec+*",), dials_itself=True)
    registry.register("gs", factory="inset_connectors.object_store:GoogleConnector", schemes=("gs",), dials_itself=True)
    registry.register("hf-cache", factory="inset_connectors.hub_cache:HubCacheConnector", schemes=("hf-cache",))
    registry.register("s3", factory="inset_connectors.object_store:S3Connector", schemes=("s3",), dials_itself=True)
