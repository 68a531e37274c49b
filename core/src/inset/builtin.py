"""The built-in plugin of the core: its own hook implementations, found through its entry point like any other."""

from __future__ import annotations

from typing import TYPE_CHECKING

from inset import hookimpl

if TYPE_CHECKING:
    from inset.registry import MediaConnectorRegistry


@hookimpl
def register_media_connectors(registry: MediaConnectorRegistry) -> None:
    """Adds what needs no further package: inline data, HTTP, and local files under a folder that the operator names."""
    registry.register("data", factory="inset.media.data_url:DataUrlConnector", schemes=("data",))
    registry.register("file", factory="inset.media.local:FileConnector", schemes=("file",))
    registry.register("http", factory="inset.media.http:HttpConnector", schemes=("http", "https"))
