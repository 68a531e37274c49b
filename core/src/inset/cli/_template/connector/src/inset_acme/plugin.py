"""The hook implementations of this package; imports nothing but the marker."""

from __future__ import annotations

from typing import TYPE_CHECKING

from inset import hookimpl

if TYPE_CHECKING:
    from inset.api import MediaConnectorRegistry


@hookimpl
def register_media_connectors(registry: MediaConnectorRegistry) -> None:
    """Adds the connector; it serves no URL until the operator says ``--media-connector acme``."""
    registry.register("acme", factory="inset_acme.connector:AcmeConnector", schemes=("acme",))
