from __future__ import annotations

import itertools
from collections.abc import Mapping
from typing import Any

import pytest

from inset.media.connector import MediaConnector
from inset.media.http import HttpConnector
from inset.testing.conformance.connector import ConnectorConformance, ConnectorSource
from inset.testing.media_server import MediaServer, Reply


class HttpSource(ConnectorSource):
    def __init__(self, server: MediaServer) -> None:
        self._server = server
        self._numbers = itertools.count()

    def make_connector(self) -> MediaConnector:
        return HttpConnector()

    def publish(self, data: bytes) -> str:
        return self._server.serve(f"/item-{next(self._numbers)}", data)

    def make_missing_url(self) -> str:
        return f"http://127.0.0.1:{self._server.port}/b0a7c0de?signature=b0a7c0de"

    def publish_redirect(self, target: str) -> str:
        return self._server.serve(f"/redirect-{next(self._numbers)}", Reply.redirect(target))

    def get_config_options(self) -> Mapping[str, Any]:
        return {"allow_private_media_hosts": ("127.0.0.1",)}


class TestConformance(ConnectorConformance):
    @pytest.fixture
    def source(self, media_server: MediaServer) -> HttpSource:
        return HttpSource(media_server)
