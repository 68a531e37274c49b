"""What processing plans, held against what the real encoder gives."""

from __future__ import annotations

import random
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest
import torch

from inset.checkpoint import load_checkpoint
from inset.modeling.attention import register_paged_attention
from inset.modeling.interfaces import LoadOptions
from inset.modeling.loading import load_adapter
from inset.processing.inputs import ProcessorInputs
from inset.processing.processor import MultiModalProcessor
from inset_llava import plugin

ADAPTERS = {"llava": "inset_llava.model:LlavaAdapter", "llava_next": "inset_llava.model:LlavaNextAdapter"}


@pytest.mark.parametrize("family", ["llava", "llava_next"])
@pytest.mark.parametrize("tower", ["clip", "siglip"])
def test_the_encoder_gives_the_rows_that_the_plan_promised(
    tiny_checkpoint: Callable[..., Path],
    make_plugin_processor: Callable[[ModuleType, Path], MultiModalProcessor],
    family: str,
    tower: str,
) -> None:
    checkpoint = load_checkpoint(tiny_checkpoint(family, tower=tower))
    processor = make_plugin_processor(plugin, checkpoint.folder)
    options = LoadOptions(torch.device("cpu"), torch.float32, register_paged_attention())
    adapter = load_adapter(ADAPTERS[family], checkpoint, options)
    random_ = random.Random(6)
    rng = np.random.default_rng(6)
    images: list[Any] = [rng.integers(0, 256, (random_.randint(1, 200), random_.randint(1, 200), 3), dtype=np.uint8) for _ in range(23)] + [
        np.zeros((1, 190, 3), np.uint8),
        np.zeros((190, 2, 3), np.uint8),
    ]
    marker = processor.info.get_placeholder_text("image", 0)
    prompt = processor.apply(ProcessorInputs(request_id="r", prompt=marker * len(images), mm_data={"image": images}))
    for image, plan, tensors in zip(images, prompt.mm_plans["image"], prompt.mm_kwargs["image"], strict=True):
        assert tensors is not None
        with torch.inference_mode():
            (rows,) = adapter.encode("image", [{name: torch.from_numpy(array.copy()) for name, array in tensors.items()}])
        assert len(rows) == plan.num_embeds, image.shape
