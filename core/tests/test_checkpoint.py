"""A checkpoint folder, whole and damaged."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from inset.checkpoint import load_checkpoint
from inset.errors import ConfigError

CONFIG = {"model_type": "llava", "architectures": ["LlavaForConditionalGeneration"]}


def write(folder: Path, files: Mapping[str, Any]) -> Path:
    for name, content in files.items():
        (folder / name).write_bytes(content if isinstance(content, bytes) else json.dumps(content).encode())
    return folder


@pytest.mark.parametrize(
    ("files", "words"),
    [
        ({}, "has no config.json"),
        ({"config.json": b"{"}, "is not JSON"),
        ({"config.json": b"\xff"}, "cannot be read"),
        ({"config.json": [1]}, "is not a JSON object"),
        ({"config.json": {**CONFIG, "model_type": ""}}, "lacks model_type"),
        ({"config.json": {**CONFIG, "architectures": "LlavaForConditionalGeneration"}}, "a list of architectures"),
        ({"config.json": {**CONFIG, "architectures": []}}, "a list of architectures"),
        ({"config.json": CONFIG, "chat_template.jinja": b"\xff\xfe"}, "chat_template.jinja .* cannot be read"),
    ],
)
def test_damaged_checkpoint_is_refused_with_the_file_and_without_the_path(tmp_path: Path, files: Mapping[str, Any], words: str) -> None:
    with pytest.raises(ConfigError, match=words) as caught:
        load_checkpoint(write(tmp_path, files))
    assert str(tmp_path) not in str(caught.value)


def test_missing_weights_are_said(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"no \.safetensors file"):
        _ = load_checkpoint(write(tmp_path, {"config.json": CONFIG})).weight_files


@pytest.mark.parametrize(
    ("files", "template"),
    [
        ({}, None),
        ({"tokenizer_config.json": {"chat_template": "from the tokenizer"}}, "from the tokenizer"),
        ({"tokenizer_config.json": {"chat_template": [{"name": "tools", "template": "a"}, {"name": "default", "template": "b"}]}}, "b"),
        ({"tokenizer_config.json": {"chat_template": [5, {"nam": 1}]}}, None),
        ({"processor_config.json": {"chat_template": "p"}, "tokenizer_config.json": {"chat_template": "t"}}, "p"),
        ({"chat_template.json": {"chat_template": "j"}, "processor_config.json": {"chat_template": "p"}}, "j"),
        ({"chat_template.jinja": b"file", "chat_template.json": {"chat_template": "j"}}, "file"),
    ],
)
def test_chat_template_comes_from_the_most_particular_file(tmp_path: Path, files: Mapping[str, Any], template: str | None) -> None:
    assert load_checkpoint(write(tmp_path, {"config.json": CONFIG, **files})).chat_template == template


def test_preprocessor_configs_come_from_their_files_or_else_from_the_processors(tmp_path: Path) -> None:
    processor = {"image_processor": {"size": 1}, "video_processor": [1]}
    checkpoint = load_checkpoint(write(tmp_path, {"config.json": CONFIG, "processor_config.json": processor}))
    assert (checkpoint.preprocessor_config, checkpoint.video_preprocessor_config) == ({"size": 1}, {})
    checkpoint = load_checkpoint(write(tmp_path, {"preprocessor_config.json": {"size": 2}}))
    assert checkpoint.preprocessor_config == {"size": 2}
