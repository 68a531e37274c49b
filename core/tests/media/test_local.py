from __future__ import annotations

import itertools
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from inset.media.connector import MediaConnector
from inset.media.local import FileConnector
from inset.testing.conformance.connector import ConnectorConformance, ConnectorSource


class FileSource(ConnectorSource):
    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._numbers = itertools.count()

    def make_connector(self) -> MediaConnector:
        return FileConnector()

    def publish(self, data: bytes) -> str:
        path = self._folder / f"item {next(self._numbers)}.bin"
        path.write_bytes(data)
        return path.as_uri()

    def make_missing_url(self) -> str:
        return (self._folder / "b0a7c0de").as_uri()

    def get_config_options(self) -> Mapping[str, Any]:
        return {"allowed_local_media_path": self._folder}


class TestConformance(ConnectorConformance):
    @pytest.fixture
    def source(self, tmp_path: Path) -> FileSource:
        return FileSource(tmp_path)
