"""The adapters against the transformers modules, without an engine around them."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from inset.errors import ConfigError
from inset.modeling.interfaces import ModelAdapter
from inset.worker.attention_check import check_paged_attention

CPU = torch.device("cpu")
FAMILIES = ["qwen2_vl", "qwen2_5_vl", "qwen3_vl"]
PATCH = {"qwen2_vl": 14, "qwen2_5_vl": 14, "qwen3_vl": 16}
LoadQwen = Callable[..., ModelAdapter]
Item = dict[str, torch.Tensor]


def make_item(family: str, grid: tuple[int, int, int], modality: str) -> Item:
    patch = PATCH[family]
    shape = (grid[0] * grid[1] * grid[2], *((2,) if modality == "video" else ()), patch, patch, 3)
    pixels = np.random.default_rng([*grid]).integers(0, 256, shape, dtype=np.uint8)
    name = "pixel_values" if modality == "image" else "pixel_values_videos"
    return {name: torch.from_numpy(pixels), f"{modality}_grid_thw": torch.tensor(grid)}


@pytest.mark.parametrize("options", [{}, {"layout": "transformers", "seed": 3}, {"text_config": {"tie_word_embeddings": True}}])
@pytest.mark.parametrize("family", FAMILIES)
def test_logits_of_text_equal_the_references(
    load_qwen: LoadQwen, reference: Callable[..., Any], family: str, options: dict[str, Any]
) -> None:
    adapter = load_qwen(family, **options)
    ids = torch.arange(9, 89)
    with torch.inference_mode():
        expected = reference(family, **options).model(input_ids=ids[None]).logits[0]
        torch.testing.assert_close(adapter.plain_forward(ids), expected, rtol=1e-4, atol=1e-4)
    check_paged_attention(adapter, device=CPU, dtype=torch.float32)


@pytest.mark.parametrize("modality", ["image", "video"])
@pytest.mark.parametrize("family", FAMILIES)
def test_rows_of_one_batch_of_many_grids_equal_those_of_single_runs(load_qwen: LoadQwen, family: str, modality: str) -> None:
    adapter = load_qwen(family)
    grids = [(1, 2, 2), (1, 8, 6), (1, 10, 2), (1, 6, 8)] if modality == "image" else [(3, 4, 6), (1, 2, 2), (2, 8, 4)]
    items = [make_item(family, grid, modality) for grid in grids]
    assert len({adapter.encoder_batch_key(modality, {name: t.numpy() for name, t in item.items()}) for item in items}) == 1
    with torch.inference_mode():
        rows = adapter.encode(modality, items)
        for (steps, height, width), item, own in zip(grids, items, rows, strict=True):
            assert own.shape == (steps * height * width // 4, adapter.embed_size)
            torch.testing.assert_close(own, adapter.encode(modality, [item])[0], rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("family", FAMILIES)
def test_a_still_picture_and_a_video_of_it_twice_give_the_same_rows(load_qwen: LoadQwen, family: str) -> None:
    adapter = load_qwen(family)
    image = make_item(family, (1, 4, 6), "image")
    video = {
        "pixel_values_videos": image["pixel_values"][:, None].repeat(1, 2, 1, 1, 1),
        "video_grid_thw": image["image_grid_thw"],
    }
    with torch.inference_mode():
        torch.testing.assert_close(adapter.encode("image", [image])[0], adapter.encode("video", [video])[0], rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
@pytest.mark.parametrize("family", FAMILIES)
def test_half_precision_passes_the_check_and_encodes(load_qwen: LoadQwen, family: str, dtype: torch.dtype) -> None:
    adapter = load_qwen(family, dtype=dtype)
    check_paged_attention(adapter, device=CPU, dtype=dtype)
    with torch.inference_mode():
        [rows] = adapter.encode("image", [make_item(family, (1, 4, 6), "image")])
    assert rows.dtype == dtype
    assert torch.isfinite(rows).all()


def test_missing_weights_are_named(load_qwen: LoadQwen, tiny_checkpoint: Callable[..., Path], tmp_path: Path) -> None:
    from safetensors.torch import load_file, save_file

    folder = tiny_checkpoint("qwen2_vl")
    tensors = load_file(folder / "model.safetensors")
    for name in ("config.json", "preprocessor_config.json"):
        (tmp_path / name).write_bytes((folder / name).read_bytes())
    save_file({n: t for n, t in tensors.items() if n != "visual.blocks.0.norm1.weight"}, tmp_path / "model.safetensors")
    with pytest.raises(ConfigError, match=r"no tensors for: model\.visual\.blocks\.0\.norm1\.weight"):
        load_qwen("qwen2_vl", folder=tmp_path)


@pytest.mark.parametrize("family", ["qwen2_vl", "qwen2_5_vl"])
def test_a_flat_config_as_it_stands_on_the_hub_is_the_same_model(
    load_qwen: LoadQwen, tiny_checkpoint: Callable[..., Path], tmp_path: Path, family: str
) -> None:
    """Older checkpoints keep the text model's settings beside the tower's, and name the type of rope `mrope`."""
    folder = tmp_path / family
    shutil.copytree(tiny_checkpoint(family), folder)
    config = json.loads((folder / "config.json").read_text())
    text = config.pop("text_config")
    rope = text.pop("rope_parameters")
    for name in ("model_type", "dtype", "layer_types"):
        text.pop(name, None)
    config["vision_config"].pop("model_type", None)
    config |= text
    config |= {"rope_theta": rope["rope_theta"], "rope_scaling": {"type": "mrope", "mrope_section": rope["mrope_section"]}}
    (folder / "config.json").write_text(json.dumps(config))
    (folder / "video_preprocessor_config.json").unlink()
    adapter = load_qwen(family, folder=folder)
    check_paged_attention(adapter, device=CPU, dtype=torch.float32)
    ids = torch.arange(9, 89)
    with torch.inference_mode():
        torch.testing.assert_close(adapter.plain_forward(ids), load_qwen(family).plain_forward(ids))


def test_a_text_model_with_a_sliding_window_passes_the_check(load_qwen: LoadQwen) -> None:
    window = {"use_sliding_window": True, "sliding_window": 24, "max_window_layers": 1}
    adapter = load_qwen("qwen2_5_vl", text_config=window)
    assert [layer.sliding_window for layer in adapter.attention_layers] == [None, 24, 24]
    check_paged_attention(adapter, device=CPU, dtype=torch.float32)
