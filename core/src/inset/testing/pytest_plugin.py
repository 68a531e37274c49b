"""Fixtures for the tests of Inset and of its plugins; pytest loads this module by itself, and nothing happens until a test asks.

- `media_server`: an HTTP server on the loopback interface that misbehaves on demand;
- `network_block`: no connection leaves the machine while the test runs; `network_block_session` does so for a whole run, for a
  conftest.py to ask for;
- `tiny_llava_folder`: a LLaVA checkpoint of a few thousand random parameters;
- `build_once`: calls what builds a checkpoint folder, and each set of arguments once in a run;
- `make_plugin_processor`: the processor of a plugin module, for a checkpoint folder;
- `plugin_host_without_discovery`: the core's built-ins alone, whatever else is installed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from types import ModuleType

    from inset.plugins import PluginHost
    from inset.processing.processor import MultiModalProcessor
    from inset.testing.media_server import MediaServer

__all__ = [
    "build_once",
    "make_plugin_processor",
    "media_server",
    "network_block",
    "network_block_session",
    "plugin_host_without_discovery",
    "tiny_llava_folder",
]

# Everything else is imported inside the fixtures: this module is loaded for each pytest run of everyone who has Inset installed.


@pytest.fixture
def media_server() -> Iterator[MediaServer]:
    """A server for scripted replies, started and stopped with the test."""
    from inset.testing.media_server import MediaServer

    with MediaServer() as server:
        yield server


@pytest.fixture
def network_block() -> Iterator[None]:
    """Refuses connections and look-ups that leave the machine, for one test."""
    from inset.testing.network_block import loopback_only

    with loopback_only():
        yield


@pytest.fixture(scope="session")
def network_block_session() -> Iterator[None]:
    """Refuses connections and look-ups that leave the machine, for the whole run."""
    from inset.testing.network_block import loopback_only

    with loopback_only():
        yield


@pytest.fixture
def plugin_host_without_discovery() -> PluginHost:
    """A host that looks at no installed package and has the built-ins alone."""
    from inset.plugins import PluginHost

    return PluginHost(distributions=())


@pytest.fixture(scope="session")
def build_once(tmp_path_factory: pytest.TempPathFactory) -> Callable[..., Path]:
    """Returns a function (builder, arguments) -> folder; `builder` takes a new folder first, and nobody may write to it afterwards.

    Example: ``build_once(build_tiny_llava, tower="siglip")``.
    """
    made: dict[object, Path] = {}

    def build(builder: Callable[..., Path], *arguments: Any, **options: Any) -> Path:
        key = (builder, repr(arguments), repr(sorted(options.items())))
        if key not in made:
            made[key] = builder(tmp_path_factory.mktemp(getattr(builder, "__name__", "checkpoint")), *arguments, **options)
        return made[key]

    return build


@pytest.fixture(scope="session")
def tiny_llava_folder(build_once: Callable[..., Path]) -> Path:
    """The folder of a LLaVA 1.5 checkpoint with random weights; nobody may write to it."""
    from inset.testing.tiny_checkpoints import build_tiny_llava

    return build_once(build_tiny_llava)


@pytest.fixture
def make_plugin_processor() -> Iterator[Callable[[ModuleType, Path], MultiModalProcessor]]:
    """Returns a function (plugin module, checkpoint folder) -> processor, without a cache; the module need not be installed."""
    from inset.testing.family import FamilyBench

    with ExitStack() as benches:

        def make(plugin: ModuleType, folder: Path) -> MultiModalProcessor:
            return benches.enter_context(FamilyBench(plugin, folder)).build().processor

        yield make
