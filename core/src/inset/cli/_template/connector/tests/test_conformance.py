"""What every connector must show; see docs/reference/conformance.md of Inset."""

from __future__ import annotations

import itertools
from pathlib import Path

import pytest
from inset.api import MediaConnector
from inset.testing.conformance.connector import ConnectorConformance, ConnectorSource

from inset_acme.connector import AcmeConnector


class AcmeSource(ConnectorSource):
    """Reaches the connector, and puts items where it finds them."""

    def __init__(self, folder: Path) -> None:
        self._location = folder / "store"
        self._numbers = itertools.count()

    def make_connector(self) -> MediaConnector:
        return AcmeConnector(location=str(self._location))

    def publish(self, data: bytes) -> str:
        key = f"item {next(self._numbers)}"
        self.put(key, data)
        return f"acme:{key}"

    def put(self, key: str, data: bytes) -> None:
        """Stores an item."""
        raise NotImplementedError("Write AcmeSource.put: store these bytes where AcmeConnector finds them.")

    def make_missing_url(self) -> str:
        return "acme:b0a7c0de"


class TestAcmeConnector(ConnectorConformance):
    @pytest.fixture
    def source(self, tmp_path: Path) -> AcmeSource:
        return AcmeSource(tmp_path)
