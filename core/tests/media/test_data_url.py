from __future__ import annotations

import base64

import pytest

from inset.media.connector import MediaConnector
from inset.media.data_url import DataUrlConnector
from inset.testing.conformance.connector import ConnectorConformance, ConnectorSource


class DataSource(ConnectorSource):
    def make_connector(self) -> MediaConnector:
        return DataUrlConnector()

    def publish(self, data: bytes) -> str:
        return "data:application/octet-stream;base64," + base64.b64encode(data).decode()


class TestConformance(ConnectorConformance):
    @pytest.fixture
    def source(self) -> DataSource:
        return DataSource()
