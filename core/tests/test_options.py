"""A text stands for one value, or is refused with both spellings of its option."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from inset.config import EngineConfig, MediaConfig, ModelConfig, PluginConfig
from inset.errors import ConfigError
from inset.options import Option, iter_options, parse_option, read_environment


def option(config: type[Any], name: str) -> Option:
    return next(item for item in iter_options(config) if item.name == name)


@pytest.mark.parametrize(
    ("config", "name", "text", "value"),
    [
        (EngineConfig, "max_num_seqs", "7", 7),
        (EngineConfig, "enable_prefix_caching", "off", False),
        (EngineConfig, "encoder_cache_size", "9", 9),
        (MediaConfig, "image_fetch_timeout_seconds", "1.5", 1.5),
        (MediaConfig, "allowed_media_domains", "a.example, b.example", ("a.example", "b.example")),
        (MediaConfig, "allowed_local_media_path", "/media", Path("/media")),
        (ModelConfig, "limit_mm_per_prompt", '{"image": 4}', {"image": 4}),
        (PluginConfig, "plugins", "", ()),
    ],
)
def test_text_stands_for_a_value(config: type[Any], name: str, text: str, value: object) -> None:
    assert parse_option(option(config, name), text) == value
    assert read_environment(config, {option(config, name).variable: text}) == {name: value}


@pytest.mark.parametrize(
    ("config", "name", "text", "words"),
    [
        (EngineConfig, "max_num_seqs", "many", "say a whole number"),
        (MediaConfig, "max_audio_seconds", "long", "say a number"),
        (EngineConfig, "enable_prefix_caching", "perhaps", "say true or false"),
        (ModelConfig, "limit_mm_per_prompt", "[4]", "say a JSON object"),
    ],
)
def test_text_of_another_form_is_refused_with_both_spellings_of_the_option(config: type[Any], name: str, text: str, words: str) -> None:
    item = option(config, name)
    with pytest.raises(ConfigError, match=rf"{item.flag} \({item.variable}\) cannot be .*: {words}"):
        parse_option(item, text)
