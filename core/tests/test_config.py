"""Options mean the same in Python, on the command line and in the environment."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from inset.config import (
    EngineConfig,
    MediaConfig,
    ModelConfig,
    Option,
    PluginConfig,
    iter_options,
    parse_option,
    read_configs,
    read_environment,
)
from inset.errors import ConfigError


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
    ("config", "name", "text"),
    [
        (EngineConfig, "max_num_seqs", "many"),
        (EngineConfig, "enable_prefix_caching", "perhaps"),
        (ModelConfig, "limit_mm_per_prompt", "[4]"),
    ],
)
def test_text_of_another_form_is_refused_with_both_spellings_of_the_option(config: type[Any], name: str, text: str) -> None:
    item = option(config, name)
    with pytest.raises(ConfigError, match=rf"{item.flag} \({item.variable}\)"):
        parse_option(item, text)


def test_given_option_wins_over_environment_and_environment_over_default() -> None:
    configs = read_configs({"max_num_seqs": 3}, {"INSET_MAX_NUM_SEQS": "5", "INSET_PORT": "9"})
    assert (configs.engine.max_num_seqs, configs.server.port, configs.engine.block_size) == (3, 9, 16)


@pytest.mark.parametrize(
    ("given", "subject", "value"),
    [
        ({"allowed_local_media_path": "/media"}, "media", Path("/media")),
        ({"allowed_media_domains": ["a", "b"]}, "media", ("a", "b")),
        ({"mm_processor_cache_gb": 1}, "cache", 1),
        ({"limit_mm_per_prompt": {"image": 1}}, "model", {"image": 1}),
        ({"max_model_len": None}, "model", None),
    ],
)
def test_values_given_in_python_take_the_form_of_the_config(given: dict[str, Any], subject: str, value: object) -> None:
    assert getattr(getattr(read_configs(given, {}), subject), next(iter(given))) == value


@pytest.mark.parametrize("given", [{"max_num_seqs": 1.5}, {"max_num_seqs": True}, {"enable_prefix_caching": 1}, {"limit_mm_per_prompt": 4}])
def test_values_of_another_type_are_refused(given: dict[str, Any]) -> None:
    with pytest.raises(ConfigError, match=next(iter(given))):
        read_configs(given, {})


def test_unknown_option_is_refused_with_the_nearest_names() -> None:
    with pytest.raises(ConfigError, match="Did you mean 'max_num_seqs'"):
        read_configs({"max_num_seq": 1}, {})


def test_every_option_belongs_to_one_subject_and_says_what_it_is() -> None:
    subjects = [type(getattr(read_configs({}, {}), name)) for name in ("plugins", "media", "model", "cache", "engine", "server")]
    names = [item.name for subject in subjects for item in iter_options(subject)]
    assert len(names) == len(set(names))
    assert all(item.help.endswith(".") for subject in subjects for item in iter_options(subject))
