"""Finds plugins, checks them, sets broken ones aside and says why; `PluginHost` is what the rest of the core uses."""

from inset.plugins.host import PluginHost, get_default_host
from inset.plugins.registries import Registries
from inset.plugins.report import PluginReport, PluginState, Provision, ResolvedPlugin

__all__ = ["PluginHost", "PluginReport", "PluginState", "Provision", "Registries", "ResolvedPlugin", "get_default_host"]
