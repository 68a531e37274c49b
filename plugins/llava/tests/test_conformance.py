"""The suites that every model family inherits, for LLaVA 1.5 and LLaVA-NeXT."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pytest
import torch

from inset.identity import JSON
from inset.inputs import ProcessedPrompt
from inset.testing.conformance.model import ModelConformance
from inset.testing.conformance.processor import ProcessorConformance
from inset_llava import plugin


class TestLlavaProcessor(ProcessorConformance):
    plugin = plugin
    options: ClassVar[Mapping[str, Mapping[str, JSON]]] = {"image": {"resample": 2}}

    @pytest.fixture
    def checkpoint_folder(self, tiny_checkpoint: Callable[..., Path]) -> Path:
        return tiny_checkpoint("llava")


class TestLlavaNextProcessor(ProcessorConformance):
    plugin = plugin
    options: ClassVar[Mapping[str, Mapping[str, JSON]]] = {"image": {"resample": 2}}

    @pytest.fixture
    def checkpoint_folder(self, tiny_checkpoint: Callable[..., Path]) -> Path:
        return tiny_checkpoint("next")


class TestLlavaModel(ModelConformance):
    plugin = plugin

    @pytest.fixture
    def checkpoint_folder(self, tiny_checkpoint: Callable[..., Path]) -> Path:
        return tiny_checkpoint("llava")

    def make_transformers_inputs(self, prompt: ProcessedPrompt, folder: Path) -> Mapping[str, torch.Tensor]:
        pictures = [item["pixel_values"] for item in prompt.mm_kwargs["image"] if item is not None]
        return {"pixel_values": torch.stack([normalize(picture, folder) for picture in pictures])}


class TestLlavaNextModel(ModelConformance):
    plugin = plugin

    @pytest.fixture
    def checkpoint_folder(self, tiny_checkpoint: Callable[..., Path]) -> Path:
        return tiny_checkpoint("next")

    def make_transformers_inputs(self, prompt: ProcessedPrompt, folder: Path) -> Mapping[str, torch.Tensor]:
        items = [item for item in prompt.mm_kwargs["image"] if item is not None]
        tiles = [normalize(item["pixel_values"], folder) for item in items]
        most = max(len(values) for values in tiles)
        return {
            "pixel_values": torch.stack([torch.cat([t, t.new_zeros(most - len(t), *t.shape[1:])]) for t in tiles]),
            "image_sizes": torch.from_numpy(np.stack([item["image_sizes"] for item in items])),
        }


def normalize(pixels: np.ndarray[Any, Any], folder: Path) -> torch.Tensor:
    """Returns uint8 pixels ``(..., height, width, 3)`` as transformers' image processor gives them, channels first."""
    config = json.loads((folder / "preprocessor_config.json").read_text())
    mean, std = torch.tensor(config["image_mean"]), torch.tensor(config["image_std"])
    values = torch.from_numpy(np.array(pixels)).float() * float(config["rescale_factor"])
    return ((values - mean) / std).movedim(-1, -3)
