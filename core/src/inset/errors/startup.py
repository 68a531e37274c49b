"""What keeps Inset from starting: options, checkpoints, the environment and plugins."""

from __future__ import annotations

from inset.errors.base import InsetError

__all__ = [
    "ConfigError",
    "DuplicateNameError",
    "MissingExtraError",
    "PluginContractError",
    "PluginError",
    "PluginLoadError",
    "UnknownNameError",
]


class ConfigError(InsetError):
    """An option, a checkpoint or the environment cannot be served; raised at start-up, never while serving."""

    default_code = "invalid_config"


class MissingExtraError(ConfigError):
    """An optional dependency is not installed; the message names the extra to install."""

    default_code = "missing_extra"


class PluginError(InsetError):
    """Something is wrong with a plugin; raised while plugins are found and registered."""

    default_code = "plugin_error"


class PluginLoadError(PluginError):
    """A plugin could not be imported, or is made for another version of Inset."""


class PluginContractError(PluginError):
    """A plugin breaks the rules of a hook or of a registry."""


class DuplicateNameError(PluginError):
    """Two plugins claim one name; the message names both distributions and the option that settles it."""


class UnknownNameError(PluginError):
    """Nothing provides this name; the message lists what there is and which package to install."""
