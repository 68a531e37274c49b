"""What one option is: its declaration in a config class, its spellings, its limits, and how a text or a value becomes it.

The option ``max_num_seqs`` is that keyword in Python, ``--max-num-seqs`` on the command line and ``INSET_MAX_NUM_SEQS`` in the environment.
The only module that reads the environment.
"""

from __future__ import annotations

import dataclasses
import json
import os
import types
import typing
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from inset.errors import ConfigError

__all__ = ["Option", "OptionsChecked", "coerce_option", "iter_options", "option", "parse_option", "read_environment"]


def option(default: Any, help_text: str, *, least: float | None = None, most: float | None = None) -> Any:
    """A field with its help and its limits; the unit stands in the name or in the text."""
    metadata = {"help": help_text, "least": least, "most": most}
    if callable(default):
        return field(default_factory=default, metadata=metadata)
    return field(default=default, metadata=metadata)


@dataclass(frozen=True, slots=True)
class Option:
    """One option as command line, environment and documentation show it; `least` and `most` bound its value, or each value of a mapping."""

    name: str
    type: Any
    default: Any
    help: str
    least: float | None = None
    most: float | None = None

    @property
    def flag(self) -> str:
        """The spelling on the command line."""
        return "--" + self.name.replace("_", "-")

    @property
    def variable(self) -> str:
        """The spelling in the environment."""
        return "INSET_" + self.name.upper()


class OptionsChecked:
    """Holds its values against the limits of its options, whoever makes it."""

    __slots__ = ()

    def __post_init__(self) -> None:
        for item in iter_options(type(self)):
            _check_limits(item, getattr(self, item.name))


def iter_options(config: type[Any]) -> Iterator[Option]:
    """Yields the options of one config class, in the order of its fields."""
    hints = typing.get_type_hints(config)
    for item in dataclasses.fields(config):
        default = item.default_factory() if item.default_factory is not dataclasses.MISSING else item.default
        yield Option(item.name, hints[item.name], default, **item.metadata)


def _check_limits(item: Option, value: Any) -> None:
    """Refuses a value, or one of the values of a mapping, that is out of the option's limits."""
    values = value.values() if isinstance(value, Mapping) else () if value is None else (value,)
    expected = _plain_kind(typing.get_args(_kind_of(item))[1]) if isinstance(value, Mapping) else None
    for part in values:
        if expected not in (None, Any) and not _is_a(part, expected):
            raise ConfigError(f"{item.flag} ({item.variable}) cannot hold {part!r}: it must be {_name_of(expected)}.")
        if item.least is not None and not part >= item.least:  # not a number is no number of anything
            raise ConfigError(f"{item.flag} ({item.variable}) cannot be {part!r}: it must be {item.least:g} or more.")
        if item.most is not None and part > item.most:
            raise ConfigError(f"{item.flag} ({item.variable}) cannot be {part!r}: it must be {item.most:g} or less.")


def coerce_option(item: Option, value: Any) -> Any:
    """Returns a value given in Python in the form that the config holds: texts are parsed, lists become tuples.

    Raises:
        ConfigError: The value has not the option's form; the option is named.
    """
    if value is None:
        return item.default
    kind = _kind_of(item)
    if isinstance(value, str) and kind is not str:
        return parse_option(item, value)
    if isinstance(value, list | set | frozenset) and typing.get_origin(kind) is tuple:
        return tuple(value)
    expected = _plain_kind(kind)
    if not _is_a(value, expected):
        raise ConfigError(f"{item.name} cannot be {value!r}: it must be {_name_of(expected)}.")
    return Path(value) if expected is Path else value


def _kind_of(item: Option) -> Any:
    """Returns the type of an option without None."""
    if typing.get_origin(item.type) in (typing.Union, types.UnionType):
        return next(kind for kind in typing.get_args(item.type) if kind is not type(None))
    return item.type


def _plain_kind(kind: Any) -> Any:
    return typing.get_origin(kind) or kind


def _is_a(value: object, kind: Any) -> bool:
    accepted = {float: (int, float), Mapping: (Mapping,), Path: (os.PathLike,)}.get(kind, (kind,))
    return isinstance(value, accepted) and (kind is bool or not isinstance(value, bool))


def _name_of(kind: Any) -> str:
    names = {int: "a whole number", float: "a number", bool: "True or False", tuple: "a list", Mapping: "a mapping", Path: "a path"}
    return names.get(kind, "text")


def parse_option(item: Option, text: str) -> Any:
    """Returns the value that a text on the command line or in the environment stands for.

    Lists are comma-separated, mappings are JSON, switches are 1/0, true/false, yes/no or on/off.

    Raises:
        ConfigError: The text has not the option's form; the option is named.
    """
    try:
        return _parse(_kind_of(item), text)
    except ValueError as error:
        raise ConfigError(f"{item.flag} ({item.variable}) cannot be {text!r}: {error}") from error


def _parse(kind: Any, text: str) -> Any:
    if kind is bool:
        lowered = text.strip().lower()
        if lowered not in {"1", "0", "true", "false", "yes", "no", "on", "off"}:
            raise ValueError("say true or false")
        return lowered in {"1", "true", "yes", "on"}
    if typing.get_origin(kind) is tuple:
        return tuple(part.strip() for part in text.split(",") if part.strip())
    if typing.get_origin(kind) in (Mapping, dict):
        value = json.loads(text)
        if not isinstance(value, dict):
            raise ValueError("say a JSON object")
        return value
    try:
        return kind(text)
    except ValueError:
        raise ValueError(f"say {_name_of(kind)}") from None


def read_environment(config: type[Any], environ: Mapping[str, str] | None = None) -> dict[str, Any]:
    """Returns the options of one config class that the environment sets.

    Raises:
        ConfigError: A variable has not the form of its option.
    """
    source = os.environ if environ is None else environ
    return {item.name: parse_option(item, source[item.variable]) for item in iter_options(config) if item.variable in source}
