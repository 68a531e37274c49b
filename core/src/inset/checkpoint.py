"""A checkpoint on disk: its configs and files, read without torch and without transformers."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from inset.errors import ConfigError

__all__ = ["Checkpoint", "load_checkpoint"]


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """The configs of one checkpoint folder, as plain JSON objects; absent files are empty.

    Attributes:
        folder: The folder; weights and tokenizer are read from it.
        config: ``config.json``.
        preprocessor_config: ``preprocessor_config.json``, or the ``image_processor`` part of ``processor_config.json``.
        video_preprocessor_config: ``video_preprocessor_config.json``, or the ``video_processor`` part of ``processor_config.json``.
        processor_config: ``processor_config.json``.
        tokenizer_config: ``tokenizer_config.json``.
        generation_config: ``generation_config.json``.
        chat_template: The Jinja text of the chat template, or None where the checkpoint has none.
    """

    folder: Path
    config: Mapping[str, Any]
    preprocessor_config: Mapping[str, Any] = field(default_factory=dict)
    video_preprocessor_config: Mapping[str, Any] = field(default_factory=dict)
    processor_config: Mapping[str, Any] = field(default_factory=dict)
    tokenizer_config: Mapping[str, Any] = field(default_factory=dict)
    generation_config: Mapping[str, Any] = field(default_factory=dict)
    chat_template: str | None = None

    @property
    def model_type(self) -> str:
        """The ``model_type`` of the config."""
        return str(self.config["model_type"])

    @property
    def architecture(self) -> str:
        """The first of the config's ``architectures``."""
        return str(self.config["architectures"][0])

    @property
    def weight_files(self) -> tuple[Path, ...]:
        """The safetensors files, sorted by name.

        Raises:
            ConfigError: There are none.
        """
        files = tuple(sorted(self.folder.glob("*.safetensors")))
        if not files:
            raise ConfigError(f"The checkpoint {self.folder.name!r} has no .safetensors file; other weight formats are not read.")
        return files


def load_checkpoint(folder: Path) -> Checkpoint:
    """Reads the configs of a checkpoint folder.

    Raises:
        ConfigError: There is no folder or no config.json, a file is not JSON, or model_type or architectures is missing.
    """
    if not (folder / "config.json").is_file():
        raise ConfigError(f"{folder.name!r} is not a checkpoint folder: it has no config.json.")
    config = _read(folder, "config.json")
    architectures = config.get("architectures")
    if not config.get("model_type") or not isinstance(architectures, list) or not architectures:
        raise ConfigError(f"config.json of the checkpoint {folder.name!r} lacks model_type or a list of architectures.")
    processor = _read(folder, "processor_config.json")
    tokenizer = _read(folder, "tokenizer_config.json")
    return Checkpoint(
        folder=folder,
        config=config,
        preprocessor_config=_read(folder, "preprocessor_config.json") or _part(processor, "image_processor"),
        video_preprocessor_config=_read(folder, "video_preprocessor_config.json") or _part(processor, "video_processor"),
        processor_config=processor,
        tokenizer_config=tokenizer,
        generation_config=_read(folder, "generation_config.json"),
        chat_template=_chat_template(folder, processor, tokenizer),
    )


def _read(folder: Path, name: str) -> dict[str, Any]:
    if not (folder / name).is_file():
        return {}
    try:
        value = json.loads(_read_text(folder, name))
    except ValueError as error:
        raise ConfigError(f"{name} of the checkpoint {folder.name!r} is not JSON: {error}") from error
    if not isinstance(value, dict):
        raise ConfigError(f"{name} of the checkpoint {folder.name!r} is not a JSON object.")
    return value


def _read_text(folder: Path, name: str) -> str:
    try:
        return (folder / name).read_text("utf-8")
    except (OSError, UnicodeError) as error:
        raise ConfigError(f"{name} of the checkpoint {folder.name!r} cannot be read: {type(error).__name__}.") from error


def _part(config: Mapping[str, Any], name: str) -> Mapping[str, Any]:
    part = config.get(name)
    return part if isinstance(part, dict) else {}


def _chat_template(folder: Path, *configs: Mapping[str, Any]) -> str | None:
    if (folder / "chat_template.jinja").is_file():
        return _read_text(folder, "chat_template.jinja")
    for config in (_read(folder, "chat_template.json"), *configs):
        template = config.get("chat_template")
        if isinstance(template, str):
            return template
        if isinstance(template, list):  # named templates, as older tokenizer configs hold them
            named = {entry.get("name"): entry.get("template") for entry in template if isinstance(entry, dict)}
            if isinstance(named.get("default"), str):
                return str(named["default"])
    return None
