"""Lets the tests import the training scripts, and loads the checkpoint once."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

DEMO = Path(__file__).parents[1]
sys.path.insert(0, str(DEMO / "train"))

if TYPE_CHECKING:
    from evaluate import Answerer


CHECKPOINTS = DEMO / "src/inset_demo/checkpoints"
NAMES = ("shapes-llava", "shapes-qwen-vl")


@pytest.fixture(scope="session", params=NAMES)
def checkpoint(request: pytest.FixtureRequest) -> Path:
    return CHECKPOINTS / str(request.param)


@pytest.fixture(scope="session")
def samples() -> Path:
    return DEMO / "src/inset_demo/samples"


@pytest.fixture(scope="session")
def answerer(checkpoint: Path) -> Answerer:
    """Plain transformers, on one thread: each model is loaded once for all tests of this folder."""
    import torch

    from plain_transformers import with_transformers

    torch.set_num_threads(1)
    return with_transformers(checkpoint)
