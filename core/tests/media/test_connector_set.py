from __future__ import annotations

import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any, ClassVar

import pytest

from inset.config import MediaConfig
from inset.errors import ConfigError, MediaPolicyError, PluginContractError, PluginLoadError, UnknownNameError
from inset.media.connector import MEDIA_CONNECTOR_REGISTRY, MediaConnector
from inset.media.connector_set import ConnectorSet
from inset.media.fetcher import MediaFetcher
from inset.media.http import HttpConnector
from inset.media.stream import ByteStream, FetchLimits
from inset.media.url import MediaUrl
from inset.plugins import PluginHost
from inset.registry import MediaConnectorRegistry


class ShopConnector(MediaConnector):
    schemes: ClassVar[tuple[str, ...]] = ("shop",)

    def __init__(self, *, region: str = "none") -> None:
        self.region = region

    async def open(self, url: MediaUrl, limits: FetchLimits) -> ByteStream:
        raise NotImplementedError


class MirrorConnector(ShopConnector):
    schemes: ClassVar[tuple[str, ...]] = ("http", "https")


class WrapConnector(ShopConnector):
    schemes: ClassVar[tuple[str, ...]] = ("wrap+*",)


class WrapHttpConnector(ShopConnector):
    schemes: ClassVar[tuple[str, ...]] = ("wrap+http",)


def make_string(**options: Any) -> str:
    return "no connector"


def make_nothing(**options: Any) -> MediaConnector:
    raise ValueError("the region is not known")


not_callable = 5


@pytest.fixture
def registry(plugin_host_without_discovery: PluginHost) -> MediaConnectorRegistry:
    """The built-ins and connectors of this module."""
    registry = plugin_host_without_discovery.registries.media_connectors
    here = __name__
    sys.modules.setdefault(here, sys.modules[__name__])
    registry.register("shop", factory=f"{here}:ShopConnector", schemes=("shop",), dials_itself=True)
    registry.register("mirror", factory=f"{here}:MirrorConnector", schemes=("http", "https"))
    registry.register("mirror-two", factory=f"{here}:MirrorConnector", schemes=("https",))
    registry.register("wrap", factory=f"{here}:WrapConnector", schemes=("wrap+*",))
    registry.register("wrap-http", factory=f"{here}:WrapHttpConnector", schemes=("wrap+http",))
    registry.register("text", factory=f"{here}:make_string", schemes=("text",))
    registry.register("nothing", factory=f"{here}:make_nothing", schemes=("nothing",))
    registry.register("absent", factory="a_module_that_is_not_there:Connector", schemes=("absent",))
    registry.register("five", factory=f"{here}:not_callable", schemes=("five",))
    return registry


def find(registry: MediaConnectorRegistry, url: str, **options: Any) -> MediaConnector:
    return ConnectorSet.build(registry, MediaConfig(**options)).find(MediaUrl.parse(url))


def test_data_and_http_serve_without_being_named(registry: MediaConnectorRegistry) -> None:
    for url in ("data:image/png;base64,AA", "http://example.com/", "https://example.com/"):
        assert find(registry, url) is not None


def test_file_serves_once_a_folder_is_allowed(registry: MediaConnectorRegistry, tmp_path: Path) -> None:
    with pytest.raises(MediaPolicyError, match=r"^Cannot load local files without --allowed-local-media-path\.$"):
        find(registry, "file:///etc/hostname")
    assert find(registry, "file:///etc/hostname", allowed_local_media_path=tmp_path).schemes == ("file",)


def test_allowed_folder_that_is_not_there_is_refused(registry: MediaConnectorRegistry, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"^--allowed-local-media-path: there is no folder '.*/nowhere'\.$"):
        find(registry, "file:///etc/hostname", allowed_local_media_path=tmp_path / "nowhere")


def test_installed_connector_serves_nothing_until_it_is_named(registry: MediaConnectorRegistry) -> None:
    with pytest.raises(MediaPolicyError, match="--media-connector"):
        find(registry, "shop://counter/item")
    assert isinstance(find(registry, "shop://counter/item", media_connector=("Shop",)), ShopConnector)


def test_prefix_serves_every_scheme_behind_it_that_has_no_connector_of_its_own(registry: MediaConnectorRegistry) -> None:
    named = {"media_connector": ("wrap", "wrap-http")}
    assert type(find(registry, "wrap+shop://counter/item", **named)) is WrapConnector
    assert type(find(registry, "wrap+wrap+http://example.com/", **named)) is WrapConnector
    assert type(find(registry, "wrap+http://example.com/", **named)) is WrapHttpConnector
    for url in ("wrap:item", "other+http://example.com/"):
        with pytest.raises(MediaPolicyError, match=r"No media connector serves"):
            find(registry, url, **named)


def test_named_connector_wins_over_a_built_in(registry: MediaConnectorRegistry) -> None:
    assert isinstance(find(registry, "https://example.com/"), HttpConnector)
    assert isinstance(find(registry, "https://example.com/", media_connector=("mirror",)), MirrorConnector)


def test_two_named_connectors_for_one_scheme_are_refused_at_start(registry: MediaConnectorRegistry) -> None:
    registry.register("mirror-three", factory=f"{__name__}:MirrorConnector", schemes=("http", "https"))
    for pair in (("mirror", "mirror-three"), ("http", "mirror"), ("mirror", "http")):
        with pytest.raises(ConfigError, match=f"{pair[0]!r} and {pair[1]!r} both serve http"):
            find(registry, "http://example.com/", media_connector=pair)


def test_connector_named_twice_counts_once(registry: MediaConnectorRegistry) -> None:
    assert isinstance(find(registry, "shop://x/", media_connector=("shop", "SHOP")), ShopConnector)


def test_options_reach_their_connector(registry: MediaConnectorRegistry) -> None:
    connector = find(registry, "shop://x/", media_connector=("shop",), media_connector_options={"shop": {"region": "eu"}})
    assert isinstance(connector, ShopConnector)
    assert connector.region == "eu"


@pytest.mark.parametrize(
    ("options", "error_class", "words"),
    [
        ({"media_connector": ("nobody",)}, UnknownNameError, "nobody"),
        ({"media_connector": ("shop",), "media_connector_options": {"shop": {"colour": 1}}}, ConfigError, "no option 'colour'"),
        ({"media_connector": ("shop",), "media_connector_options": {"shop": {"regon": 1}}}, ConfigError, "did you mean 'region'"),
        ({"media_connector_options": {"shop": {}}}, ConfigError, "--media-connector"),
        ({"media_connector": ("text",)}, PluginContractError, "not a MediaConnector"),
        ({"media_connector": ("five",)}, PluginContractError, "cannot be called"),
        ({"media_connector": ("nothing",)}, ConfigError, "'nothing' cannot be made .* the region is not known"),
        ({"media_connector": ("absent",)}, PluginLoadError, "'absent' .* cannot be loaded"),
        ({"media_connector": ("mirror-two",)}, PluginContractError, "is registered for"),
    ],
)
def test_what_cannot_serve_is_refused_at_start(
    registry: MediaConnectorRegistry, options: Mapping[str, Any], error_class: type[Exception], words: str
) -> None:
    with pytest.raises(error_class, match=words):
        ConnectorSet.build(registry, MediaConfig(**options))


def test_connector_that_dials_by_itself_is_said_to_the_operator(registry: MediaConnectorRegistry, caplog: pytest.LogCaptureFixture) -> None:
    ConnectorSet.build(registry, MediaConfig(media_connector=("shop",)))
    assert "shop opens connections by itself" in caplog.text


def test_fetcher_is_built_from_a_registry_and_options(registry: MediaConnectorRegistry) -> None:
    with MediaFetcher.build(registry, MediaConfig(media_connector=("shop",))) as fetcher:
        assert fetcher.config.media_connector == ("shop",)


def test_view_of_the_default_core_is_read_only_and_loads_no_connector() -> None:
    code = """
import sys
from inset.media.connector import MEDIA_CONNECTOR_REGISTRY as registry
assert "inset.media.http" not in sys.modules
assert {"data", "file", "http"} <= set(registry)
assert registry["http"].schemes == ("http", "https") and len(registry) >= 3
assert not hasattr(registry, "register") and "aiohttp" not in sys.modules and "torch" not in sys.modules
"""
    subprocess.run([sys.executable, "-c", code], check=True, timeout=60)


def test_view_cannot_be_written() -> None:
    with pytest.raises(TypeError):
        MEDIA_CONNECTOR_REGISTRY["mine"] = None  # type: ignore[index]
