from __future__ import annotations

from pathlib import Path

import pytest

from inset.checkpoint import Checkpoint
from inset.config import PluginConfig
from inset.media.image import ImageIO
from inset.plugins import PluginHost

CHECKPOINT = Checkpoint(folder=Path("any"), config={"model_type": "any", "architectures": ["Any"]})


@pytest.fixture
def core() -> PluginHost:
    return PluginHost(PluginConfig(), distributions=())


def test_core_alone_fetches_inline_remote_and_local_media(core: PluginHost) -> None:
    schemes = {name: registration.schemes for name, registration in core.registries.media_connectors.view().items()}
    assert schemes == {"data": ("data",), "file": ("file",), "http": ("http", "https")}


def test_core_brings_the_cache_types_for_one_and_for_several_front_ends(core: PluginHost) -> None:
    caches = core.registries.processor_caches
    assert not caches.get("lru").supports_multiple_fronts
    assert caches.get("processor_only").supports_multiple_fronts


def test_core_decodes_for_models_whose_plugin_does_not(core: PluginHost) -> None:
    factory: object = core.get_media_io("image", CHECKPOINT)
    assert factory is ImageIO


def test_core_brings_no_model(core: PluginHost) -> None:
    assert len(core.registries.models) == len(core.registries.processors) == len(core.registries.checkpoints) == 0
