"""Options mean the same in Python, on the command line and in the environment."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from inset.config import CacheConfig, EngineConfig, MediaConfig, ModelConfig, ServerConfig, read_configs
from inset.errors import ConfigError
from inset.options import iter_options, parse_option


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


@pytest.mark.parametrize(
    ("config", "name", "text", "words"),
    [
        (MediaConfig, "image_threads", "0", "1 or more"),
        (MediaConfig, "max_item_download_bytes", "-1", "0 or more"),
        (MediaConfig, "image_fetch_deadline_seconds", "nan", "0 or more"),
        (MediaConfig, "media_io_kwargs", '{"image": 5}', "a mapping"),
        (ModelConfig, "limit_mm_per_prompt", '{"image": "four"}', "a whole number"),
        (ModelConfig, "limit_mm_per_prompt", '{"image": -1}', "0 or more"),
        (ServerConfig, "port", "65536", "65535 or less"),
    ],
)
def test_value_out_of_limits_is_refused_whoever_makes_the_config(config: type[Any], name: str, text: str, words: str) -> None:
    item = next(item for item in iter_options(config) if item.name == name)
    with pytest.raises(ConfigError, match=rf"{item.flag} \({item.variable}\) cannot .*{words}"):
        read_configs({}, {item.variable: text})
    with pytest.raises(ConfigError, match=words):
        config(**{name: parse_option(item, text)})


def test_every_number_has_a_least_value() -> None:
    """So that no time-out, size or number of threads is negative or not a number."""
    unbounded = {
        item.name
        for config in (CacheConfig, EngineConfig, MediaConfig, ModelConfig, ServerConfig)
        for item in iter_options(config)
        if item.least is None and item.type in (int, float, int | None, float | None)
    }
    assert unbounded == {"seed"}


def test_unknown_option_is_refused_with_the_nearest_names() -> None:
    with pytest.raises(ConfigError, match="Did you mean 'max_num_seqs'"):
        read_configs({"max_num_seq": 1}, {})


def test_every_option_belongs_to_one_subject_and_says_what_it_is() -> None:
    subjects = [type(getattr(read_configs({}, {}), name)) for name in ("plugins", "media", "model", "cache", "engine", "server")]
    names = [item.name for subject in subjects for item in iter_options(subject)]
    assert len(names) == len(set(names))
    assert all(item.help.endswith(".") for subject in subjects for item in iter_options(subject))
