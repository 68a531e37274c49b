"""Memory is measured with the largest items that a model's options allow."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from inset.checkpoint import load_checkpoint
from inset.config import read_configs
from inset.engine.largest_step import make_largest_step
from inset.engine.limits import EngineLimits
from inset.modeling.attention import register_paged_attention
from inset.modeling.interfaces import LoadOptions
from inset.modeling.loading import load_adapter, resolve_device, resolve_dtype
from inset.plugins import PluginHost

LIMITS = EngineLimits(max_model_len=512, encoder_compute_budget=100, encoder_cache_size=100)


@pytest.mark.parametrize(
    ("model", "options", "batches"), [("llava", {}, [6]), ("llava_next", {}, [4]), ("llava", {"limit_mm_per_prompt": {"image": 0}}, [])]
)
def test_the_largest_step_fills_the_budget_of_the_encoder(
    model: str, options: dict[str, Any], batches: list[int], checkpoints: dict[str, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    configs = read_configs({"model": str(checkpoints[model]), "device": "cpu", **options}, environ={})
    host, checkpoint = PluginHost(configs.plugins), load_checkpoint(checkpoints[model])
    device = resolve_device("cpu")
    load_options = LoadOptions(device, resolve_dtype("auto", device, checkpoint), register_paged_attention())
    adapter = load_adapter(host.registries.models.get(checkpoint.architecture).adapter, checkpoint, load_options)
    encode, encoded = adapter.encode, []

    def count(modality: str, items: Any) -> Any:
        encoded.append(len(items))
        return encode(modality, items)

    monkeypatch.setattr(adapter, "encode", count)
    make_largest_step(configs, host, checkpoint, adapter, limits=LIMITS)()
    assert encoded == batches
