"""Which connectors serve: chosen by the operator, dispatched by scheme, opened on first use."""

from __future__ import annotations

import asyncio
import difflib
import inspect
import logging
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final

from inset.config import MediaConfig
from inset.errors import ConfigError, InsetError, InvariantError, MediaPolicyError, PluginContractError
from inset.media.connector import MediaConnector
from inset.media.stream import close_quietly
from inset.media.url import MediaUrl
from inset.registry import MediaConnectorRegistry, normalize_name

__all__ = ["ConnectorSet"]

_log = logging.getLogger(__name__)

CLOSE_SECONDS: Final = 2.0

_ALWAYS: Final = ("data", "http")


class ConnectorSet:
    """Scheme -> connector, for one core."""

    def __init__(self, connectors: Iterable[MediaConnector]) -> None:
        """Takes connectors in order of rank: of two for one scheme, the first serves it."""
        self._by_scheme: dict[str, MediaConnector] = {}
        self._opened: set[MediaConnector] = set()
        self.connectors = tuple(dict.fromkeys(connectors))
        # One each: a connector that takes long to open holds up no other.
        self._locks = {connector: asyncio.Lock() for connector in self.connectors}
        for connector in self.connectors:
            for scheme in connector.schemes:
                self._by_scheme.setdefault(scheme, connector)

    @classmethod
    def build(cls, registry: MediaConnectorRegistry, config: MediaConfig) -> ConnectorSet:
        """Makes the connectors that the operator named, and those that serve without being named: data, http and, where a folder is
        allowed, file. A named one wins over one that was not named.

        Raises:
            ConfigError: Two named connectors serve one scheme, options do not fit, or there is no such folder.
            UnknownNameError: A name that no plugin provides.
            PluginLoadError: A connector's module cannot be imported; its plugin is named.
            MissingExtraError: It needs an extra of Inset that is not installed.
            PluginContractError: A factory gives something else than a connector for its schemes.
        """
        named = tuple(dict.fromkeys(normalize_name(name) for name in config.media_connector))
        _refuse_clashes(registry, named)
        folder = config.allowed_local_media_path
        if folder is not None and not folder.is_dir():
            raise ConfigError(f"--allowed-local-media-path: there is no folder {str(folder)!r}.")
        local = () if folder is None else ("file",)
        names = tuple(dict.fromkeys((*named, *_ALWAYS, *local)))
        options = {normalize_name(name): value for name, value in config.media_connector_options.items()}
        if unused := options.keys() - set(names):
            raise ConfigError(f"--media-connector-options has options for {', '.join(sorted(unused))}; name it in --media-connector.")
        return cls(_make(registry, name, options.get(name, {})) for name in names)

    def find(self, url: MediaUrl) -> MediaConnector:
        """Returns the connector for a URL.

        Raises:
            MediaPolicyError: None serves its scheme.
        """
        prefix, plus, _ = url.scheme.partition("+")
        connector = self._by_scheme.get(url.scheme) or self._by_scheme.get(f"{prefix}{plus}*")
        if connector is not None:
            return connector
        if url.scheme == "file":
            raise MediaPolicyError("Cannot load local files without --allowed-local-media-path.", stage="fetch")
        served = ", ".join(f"{scheme}:" for scheme in sorted(self._by_scheme))
        message = f"No media connector serves {url.scheme}: URLs; served are {served}. The operator enables one with --media-connector."
        raise MediaPolicyError(message, stage="fetch")

    async def ensure_open(self, connector: MediaConnector) -> None:
        """Opens a connector before its first use; on the media loop.

        Raises:
            InvariantError: It cannot be opened; the next use tries again. An error of ours that the connector raises passes as it is.
        """
        if connector in self._opened:
            return
        async with self._locks[connector]:
            if connector in self._opened:
                return
            try:
                await connector.aopen()
            except (InsetError, asyncio.CancelledError, GeneratorExit):
                raise
            except BaseException as error:  # also SystemExit, which would end the loop of all connectors
                raise InvariantError(f"The connector {type(connector).__name__} cannot be opened ({type(error).__name__}).") from error
            self._opened.add(connector)

    async def aclose(self) -> None:
        """Closes what was opened, all at the same time; on the media loop. A connector that fails to close, or hangs, holds up no other."""
        closings = (
            close_quietly(connector.aclose, f"The connector {type(connector).__name__}", timeout_seconds=CLOSE_SECONDS)
            for connector in self._opened
        )
        await asyncio.gather(*closings)
        self._opened.clear()


def _refuse_clashes(registry: MediaConnectorRegistry, named: Iterable[str]) -> None:
    by_scheme: dict[str, str] = {}
    for name in named:
        for scheme in registry.get(name).schemes:
            other = by_scheme.setdefault(scheme, name)
            if other != name:
                raise ConfigError(f"The media connectors {other!r} and {name!r} both serve {scheme}: URLs; name one of them alone.")


def _refuse_unknown(name: str, factory: Callable[..., object], options: Mapping[str, Any]) -> None:
    """Refuses an option that the factory does not take, as far as its signature says."""
    try:
        parameters = inspect.signature(factory).parameters.values()
    except (TypeError, ValueError):
        return
    if any(parameter.kind is parameter.VAR_KEYWORD for parameter in parameters):
        return
    known = [item.name for item in parameters if item.kind in (item.KEYWORD_ONLY, item.POSITIONAL_OR_KEYWORD)]
    for option in options:
        if option not in known:
            near = difflib.get_close_matches(option, known, n=1)
            hint = f"did you mean {near[0]!r}?" if near else f"it takes {', '.join(known) or 'none'}."
            raise ConfigError(f"The media connector {name!r} has no option {option!r} (--media-connector-options): {hint}")


def _make(registry: MediaConnectorRegistry, name: str, options: Mapping[str, Any]) -> MediaConnector:
    registration = registry.get(name)
    factory = registry.load(name, "factory")
    if not callable(factory):
        raise PluginContractError(f"The factory of the media connector {name!r} cannot be called.")
    _refuse_unknown(name, factory, options)
    try:
        connector = factory(**options)
    except InsetError:
        raise
    except (Exception, SystemExit) as error:  # a plugin's code may raise anything; a TypeError says which option it does not take
        message = f"The media connector {name!r} cannot be made with its --media-connector-options: {type(error).__name__}: {error}."
        raise ConfigError(message) from error
    if not isinstance(connector, MediaConnector):
        raise PluginContractError(f"The factory of the media connector {name!r} gave a {type(connector).__name__}, not a MediaConnector.")
    if set(connector.schemes) != set(registration.schemes):
        raise PluginContractError(f"The media connector {name!r} serves {connector.schemes}, but is registered for {registration.schemes}.")
    if registration.dials_itself:
        _log.warning("The media connector %s opens connections by itself: address and redirect rules do not hold for it.", name)
    return connector
