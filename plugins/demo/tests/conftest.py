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


@pytest.fixture(scope="session")
def checkpoint() -> Path:
    return DEMO / "src/inset_demo/checkpoints/shapes-llava"


@pytest.fixture(scope="session")
def samples() -> Path:
    return DEMO / "src/inset_demo/samples"


@pytest.fixture(scope="session")
def answerer(checkpoint: Path) -> Answerer:
    """Plain transformers, on one thread: the model is loaded once for all tests of this folder."""
    import torch

    from evaluate import with_transformers

    torch.set_num_threads(1)
    return with_transformers(checkpoint)
