from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from types import ModuleType

import pytest

from inset.checkpoint import load_checkpoint
from inset.errors import UnknownNameError
from inset.plugins import PluginHost
from inset.processing.processor import MultiModalProcessor
from inset.testing.tiny_checkpoints import CHAT_TEMPLATE, save_configs


def test_host_without_discovery_has_the_built_ins_alone(plugin_host_without_discovery: PluginHost) -> None:
    assert [plugin.name for plugin in plugin_host_without_discovery.report()] == ["inset"]
    assert {"data", "file", "http"} <= set(plugin_host_without_discovery.registries.media_connectors.view())


def test_plugin_loads_nothing_and_blocks_nothing_for_those_who_do_not_ask(tmp_path: Path) -> None:
    (tmp_path / "test_stranger.py").write_text(
        "import sys, socket, pytest\n"
        "def test_light():\n"
        "    assert 'inset.testing.pytest_plugin' in sys.modules\n"
        "    heavy = {'inset.testing.network_block', 'inset.media.http', 'inset.plugins', 'torch', 'numpy', 'aiohttp'}\n"
        "    assert not heavy & set(sys.modules)\n"
        "def test_asks(network_block, media_server):\n"
        "    with socket.socket() as client, pytest.raises(OSError, match='loopback'):\n"
        "        client.connect(('93.184.215.14', 80))\n"
        "    socket.create_connection(('127.0.0.1', media_server.port)).close()\n"
    )
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "--rootdir", str(tmp_path), str(tmp_path)]
    seen = subprocess.run(command, capture_output=True, text=True, timeout=120, cwd=tmp_path)
    assert seen.returncode == 0, seen.stdout + seen.stderr
    assert "2 passed" in seen.stdout


@pytest.mark.usefixtures("network_block")
def test_block_for_one_test_may_lie_within_that_of_the_run() -> None:
    pass


def test_equal_arguments_build_a_checkpoint_once(build_once: Callable[..., Path]) -> None:
    built = []

    def build(folder: Path, *, flavour: str = "plain") -> Path:
        built.append(flavour)
        return folder

    assert build_once(build) == build_once(build)
    assert build_once(build, flavour="sweet") != build_once(build)
    assert built == ["plain", "sweet"]


def test_processor_is_built_from_what_the_plugin_module_registers_alone(
    make_plugin_processor: Callable[[ModuleType, Path], MultiModalProcessor], tmp_path: Path
) -> None:
    plugin = ModuleType("nothing_registered")
    folder = save_configs(tmp_path / "configs", {"config": {"model_type": "unheard-of", "architectures": ["None"]}})
    assert load_checkpoint(folder).chat_template == CHAT_TEMPLATE
    with pytest.raises(UnknownNameError, match="unheard-of"):
        make_plugin_processor(plugin, folder)
