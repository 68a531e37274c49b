"""A tiny checkpoint of the family: LLaVA's under this family's name, until there is one of its own."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from inset.testing.tiny_checkpoints import build_tiny_llava


@pytest.fixture(scope="session")
def checkpoint_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with configs, tokenizer and random weights."""
    folder = build_tiny_llava(tmp_path_factory.mktemp("acme"), layout="transformers")
    config = json.loads((folder / "config.json").read_text())
    config |= {"model_type": "acme", "architectures": ["AcmeForConditionalGeneration"]}
    config["image_token_id"] = config.get("image_token_id", config.get("image_token_index"))
    (folder / "config.json").write_text(json.dumps(config))
    return folder
