from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

from inset.checkpoint import Checkpoint
from inset.errors import ConfigError, PluginContractError
from inset.modeling.attention import register_paged_attention
from inset.modeling.interfaces import LoadOptions
from inset.modeling.loading import build_module, load_adapter, resolve_device, resolve_dtype

CPU = torch.device("cpu")
CUDA = torch.device("cuda", 0)


def checkpoint(**config: Any) -> Checkpoint:
    return Checkpoint(folder=Path("nowhere"), config={"model_type": "made-up", **config})


@pytest.mark.parametrize(
    ("name", "device", "config", "expected"),
    [
        ("auto", CPU, {"dtype": "bfloat16"}, torch.float32),
        ("auto", CUDA, {"dtype": "float16"}, torch.float16),
        ("auto", CUDA, {"torch_dtype": "bfloat16"}, torch.bfloat16),
        ("auto", CUDA, {"text_config": {"dtype": "float32"}}, torch.float32),
        ("auto", CUDA, {}, torch.bfloat16),
        ("float16", CPU, {"dtype": "float32"}, torch.float16),
        ("bfloat16", CUDA, {}, torch.bfloat16),
    ],
)
def test_dtype_follows_the_option_then_the_device_then_the_checkpoint(
    name: str, device: torch.device, config: dict[str, Any], expected: torch.dtype
) -> None:
    assert resolve_dtype(name, device, checkpoint(**config)) is expected


@pytest.mark.parametrize(("name", "config"), [("int8", {}), ("double", {}), ("auto", {"dtype": "float8_e4m3fn"})])
def test_other_dtypes_are_refused_with_what_there_is(name: str, config: dict[str, Any]) -> None:
    with pytest.raises(ConfigError, match="float32, bfloat16 or float16"):
        resolve_dtype(name, CUDA, checkpoint(**config))


def test_the_cpu_can_be_named() -> None:
    assert resolve_device("cpu") == CPU
    assert resolve_device("auto").type == ("cuda" if torch.cuda.is_available() else "cpu")


@pytest.mark.parametrize("name", ["tpu", "cuda:x", "cpu:1", "", "cuda:99"])
def test_devices_that_are_not_there_are_refused(name: str) -> None:
    with pytest.raises(ConfigError, match="device"):
        resolve_device(name)


def test_a_target_that_is_no_adapter_is_the_plugins_fault() -> None:
    with pytest.raises(PluginContractError, match=r"no subclass of inset\.api\.ModelAdapter"):
        load_adapter("inset.checkpoint:Checkpoint", checkpoint(), LoadOptions(CPU, torch.float32, "any"))


def test_a_module_is_built_without_memory_but_with_its_buffers() -> None:
    from transformers import LlamaConfig, LlamaModel

    config = LlamaConfig(hidden_size=32, intermediate_size=64, num_hidden_layers=1, num_attention_heads=4, vocab_size=50)
    module = build_module(LlamaModel, config, LoadOptions(CPU, torch.bfloat16, register_paged_attention()))
    assert all(p.is_meta for p in module.parameters() if p.dim() > 1)
    assert all(p.dtype is torch.bfloat16 for p in module.parameters())
    assert not any(buffer.is_meta for buffer in module.buffers())
    assert torch.empty(1).device == CPU
