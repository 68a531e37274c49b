"""The options of `inset.config` as flags, and flags back into configs; every command that builds an engine shares them."""

from __future__ import annotations

import argparse
import dataclasses
import typing
from collections.abc import Iterator, Mapping
from typing import Any, Final

from inset.cli.plugins import add_plugin_options, read_plugin_config
from inset.config import MIB, Configs, PluginConfig, read_configs
from inset.errors import ConfigError
from inset.options import Option, iter_options, parse_option

__all__ = ["add_options", "iter_described", "read_options"]

_SUBJECTS: Final = ("model", "media", "cache", "engine", "server")
_MODALITIES: Final = ("image", "video", "audio")


def add_options(parser: argparse.ArgumentParser, *, has_media: bool = False) -> None:
    """Adds the model as a positional word, and a flag for every option.

    Args:
        parser: The command's.
        has_media: Words behind the model are media; `inset.cli.messages.split_words` tells one from the other.
    """
    # All the flags would be a page that nobody reads, before every message.
    parser.usage = "%(prog)s [OPTION ...] MODEL" + (" [MEDIA ...]" if has_media else "")
    model = "checkpoint folder, or the name of a shipped checkpoint"
    if has_media:
        media = "then files or URLs that the question is about"
        parser.add_argument("words", metavar="MODEL [MEDIA ...]", nargs="*", help=f"{model}, unless --model names it; {media}")
    else:
        parser.add_argument("model", metavar="MODEL", nargs="?", help=model)
    add_plugin_options(parser)
    for subject in _SUBJECTS:
        group = parser.add_argument_group(f"{subject} options")
        for item, default in iter_described(_config_class(subject)):
            _add_option(group, item, default)


def _config_class(subject: str) -> type[Any]:
    return typing.cast("type[Any]", typing.get_type_hints(Configs)[subject])


def iter_described(config: type[Any]) -> Iterator[tuple[Option, str]]:
    """Yields the options of one config class, each with its default as people read it."""
    by_cores = {field.name for field in dataclasses.fields(config) if field.default_factory not in (dataclasses.MISSING, dict)}
    for item in iter_options(config):
        yield item, "by the number of cores" if item.name in by_cores else _describe(item)


def _describe(item: Option) -> str:
    value = item.default
    if value is None or value == "":
        return "unset"
    if value == () or value == {}:
        return "empty"
    if isinstance(value, bool):
        return "on" if value else "off"
    if item.name.endswith("_bytes") and value >= MIB:
        return f"{value // MIB} MiB" if value < 1024 * MIB else f"{value // (1024 * MIB)} GiB"
    if isinstance(value, int):
        return f"{value:,}" if value >= 10_000 else str(value)
    return f"{value:g}" if isinstance(value, float) else str(value)


def _add_option(group: argparse._ArgumentGroup, item: Option, default: str) -> None:
    stated = "" if default in ("unset", "empty") else f" Default: {default}."
    help_text = f"{item.help}{stated} [{item.variable}]".replace("%", "%%")
    if item.type is bool:
        group.add_argument(item.flag, dest=item.name, action=argparse.BooleanOptionalAction, default=None, help=help_text)
        return
    dest = "model_flag" if item.name == "model" else item.name
    is_list = typing.get_origin(item.type) is tuple
    group.add_argument(item.flag, dest=dest, action="append" if is_list else "store", default=None, metavar="VALUE", help=help_text)
    if item.name == "limit_mm_per_prompt":
        for modality in _MODALITIES:
            name = f"{item.name}.{modality}"
            group.add_argument(f"{item.flag}.{modality}", dest=name, type=int, metavar="N", help=f"The same for {modality}s alone.")


def read_options(args: argparse.Namespace, environ: Mapping[str, str] | None = None) -> Configs:
    """Returns the configs that the command line, the environment and the defaults give, in this order.

    Raises:
        ConfigError: A value has not its option's form, or no model is named.
    """
    given: dict[str, Any] = {}
    for subject in _SUBJECTS:
        for item in iter_options(_config_class(subject)):
            value = _value_of(args, item)
            if value is not None:
                given[item.name] = value
    plugins = read_plugin_config(args)
    for item in iter_options(PluginConfig):
        value = getattr(plugins, item.name)
        if value is not None:
            given[item.name] = value
    configs = read_configs(given, environ)
    if not configs.model.model:
        raise ConfigError("Name a model: a checkpoint folder, or the name of a checkpoint that an installed plugin ships.")
    return configs


def _value_of(args: argparse.Namespace, item: Option) -> Any:
    if item.name == "model":
        return args.model if args.model is not None else args.model_flag
    text = getattr(args, item.name)
    if item.name == "limit_mm_per_prompt":
        return _limits(args, item, text)
    if isinstance(text, list):
        return tuple(value for part in text for value in parse_option(item, part))
    return parse_option(item, text) if isinstance(text, str) else text


def _limits(args: argparse.Namespace, item: Option, text: str | None) -> Mapping[str, Any] | None:
    single = {modality: getattr(args, f"{item.name}.{modality}") for modality in _MODALITIES}
    whole: dict[str, Any] = {} if text is None else dict(parse_option(item, text))
    whole.update({modality: limit for modality, limit in single.items() if limit is not None})
    return whole or None
