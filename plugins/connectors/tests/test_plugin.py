"""The connectors as an operator enables them: by name, with options as JSON."""

from __future__ import annotations

import json
import subprocess
import sys
import zipfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from inset.api import ConfigError, MediaConfig, MediaPolicyError
from inset.media.fetcher import MediaFetcher
from inset.plugins import PluginHost
from inset.testing.media_io import EncodedBytesIO
from inset.testing.media_server import MediaServer

REGISTRY = PluginHost().registries.media_connectors
OPTIONS: Mapping[str, Mapping[str, Any]] = {
    "archive": {},
    "az": {"buckets": ["birds"], "config": {"account_name": "me"}},
    "cached": {"age_seconds": 5},
    "fsspec": {"protocols": {"memory": {}}},
    "gs": {"anonymous": True},
    "hf-cache": {"repos": ["datasets/birds/small"]},
    "s3": {"buckets": ["birds"], "config": {"region": "us-east-1"}},
}
OWN = sorted(name for name, registration in REGISTRY.view().items() if registration.factory.startswith("inset_connectors."))


def test_options_are_listed_for_every_connector() -> None:
    assert sorted(OPTIONS) == OWN


@pytest.mark.parametrize("name", OWN)
def test_connector_serves_its_schemes_once_it_is_named(name: str) -> None:
    config = MediaConfig(media_connector=(name,), media_connector_options=json.loads(json.dumps({name: OPTIONS[name]})))
    with MediaFetcher.build(REGISTRY, config) as fetcher, pytest.raises(MediaPolicyError) as caught:
        fetcher.fetch_image("other:item", EncodedBytesIO())
    for scheme in REGISTRY.get(name).schemes:
        assert f"{scheme}:" in str(caught.value)


def test_all_of_them_serve_side_by_side() -> None:
    with MediaFetcher.build(REGISTRY, MediaConfig(media_connector=tuple(OWN), media_connector_options=OPTIONS)):
        pass


@pytest.mark.parametrize("name", OWN)
def test_option_that_is_not_known_is_said_at_start(name: str) -> None:
    config = MediaConfig(media_connector=(name,), media_connector_options={name: {**OPTIONS[name], "nonsense": 1}})
    with pytest.raises(ConfigError, match=r"nonsense|no arguments"):
        MediaFetcher.build(REGISTRY, config)


@pytest.mark.parametrize("name", OWN)
def test_who_opens_connections_by_himself_says_so(name: str) -> None:
    assert REGISTRY.get(name).dials_itself == (name in {"az", "fsspec", "gs", "s3"})


def test_connectors_can_be_stacked(media_server: MediaServer, tmp_path: Path) -> None:
    with zipfile.ZipFile(tmp_path / "a.zip", "w") as archive:
        archive.writestr("a.png", b"picture")
    url = media_server.serve("/a.zip", (tmp_path / "a.zip").read_bytes())
    config = MediaConfig(media_connector=("archive", "cached"), allow_private_media_hosts=("127.0.0.1",))
    with MediaFetcher.build(REGISTRY, config) as fetcher:
        for _ in range(2):
            assert fetcher.fetch_image(f"zip+cached+{url}!/a.png", EncodedBytesIO()).data == b"picture"
    assert media_server.count("/a.zip") == 1


def test_clients_are_imported_by_their_own_connectors_alone() -> None:
    code = (
        "import sys, inset_connectors.archive, inset_connectors.cached, inset_connectors.filesystem, inset_connectors.hub_cache, "
        "inset_connectors.object_store; print(sorted({'obstore', 'fsspec', 'huggingface_hub', 'torch'} & set(sys.modules)))"
    )
    ended = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=True)
    assert ended.stdout == "[]\n"
