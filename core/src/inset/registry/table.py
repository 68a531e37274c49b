"""One table: name -> registration, with its owner, and how what it names is imported on first use."""

from __future__ import annotations

import importlib
import re
from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Final, Generic, TypeVar

from inset.errors import DuplicateNameError, MissingExtraError, PluginContractError, PluginLoadError, UnknownNameError

__all__ = ["Owner", "Registry", "describe_clash", "find_extra", "load_object", "normalize_name"]

T = TypeVar("T")

_EXTRAS: Final = {
    "torch": "engine",
    "transformers": "engine",
    "safetensors": "engine",
    "fastapi": "server",
    "uvicorn": "server",
    "httptools": "server",
    "prometheus_client": "server",
    "pytest": "testing",
}


def normalize_name(name: str) -> str:
    """Returns the form in which names compare: lower case, runs of ``-``, ``_`` and ``.`` as one ``-``.

    Raises:
        PluginContractError: The name is not text, or is empty.
    """
    if not isinstance(name, str) or not name.strip():
        raise PluginContractError(f"A name must be text that is not empty, not {name!r}.")
    return re.sub(r"[-_.]+", "-", name.strip()).lower()


def load_object(target: str) -> object:
    """Imports ``"package.module:attribute"`` and returns the attribute.

    Raises:
        PluginContractError: The module has no such attribute.
        ImportError: The module cannot be imported; `Registry.load` knows which plugin to name.
    """
    module_name, _, attribute = target.partition(":")
    module = importlib.import_module(module_name)
    try:
        return getattr(module, attribute)
    except AttributeError as error:
        raise PluginContractError(f"Module {module_name!r} has no attribute {attribute!r}.") from error


def find_extra(error: ModuleNotFoundError) -> str | None:
    """Returns which extra of Inset brings the module that was not found, or None where none does."""
    return _EXTRAS.get((error.name or "").partition(".")[0])


@dataclass(frozen=True, slots=True)
class Owner:
    """The plugin that a registration came from.

    Attributes:
        plugin: The entry point's name, in normal form.
        distribution: The name of the installed distribution.
        version: That distribution's version.
    """

    plugin: str
    distribution: str
    version: str


class Registry(Generic[T]):
    """Name -> registration, with its owner; every core has its own.

    Plugins only add, while `owner` is set by the host; everyone else reads through `view`.
    """

    def __init__(self, kind: str, registration_class: type[T]) -> None:
        self.kind = kind
        self.registration_class = registration_class
        self.owner: Owner | None = None
        self._entries: dict[str, T] = {}
        self._owners: dict[str, Owner | None] = {}
        self._spelling: dict[str, str] = {}

    def add(self, name: str, registration: T) -> None:
        """Adds a registration under a name.

        Raises:
            DuplicateNameError: The name is taken; both distributions are named.
            PluginContractError: The name is not text, or the registration is of another kind.
        """
        key = normalize_name(name)
        if not isinstance(registration, self.registration_class):
            wanted, given = self.registration_class.__name__, type(registration).__name__
            raise PluginContractError(f"The {self.kind} {name!r} must be registered as a {wanted}, not {given}; use register().")
        if key in self._entries:
            raise DuplicateNameError(describe_clash(self.kind, name, self._owners[key], self.owner))
        self._entries[key] = registration
        self._owners[key] = self.owner
        self._spelling[key] = name

    def get(self, name: str) -> T:
        """Returns the registration of a name.

        Raises:
            UnknownNameError: Nothing provides it; what there is stands in the message.
        """
        try:
            return self._entries[normalize_name(name)]
        except KeyError:
            there_is = ", ".join(self.names()) or "none"
            raise UnknownNameError(
                f"There is no {self.kind} {name!r}. Installed: {there_is}. `inset plugins list` shows what was set aside, and why."
            ) from None

    def owner_of(self, name: str) -> Owner | None:
        """Returns the plugin that registered a name, or None where code did so without a plugin."""
        self.get(name)
        return self._owners[normalize_name(name)]

    def names(self) -> tuple[str, ...]:
        """Returns the names as they were registered, sorted."""
        return tuple(sorted(self._spelling.values()))

    def load(self, name: str, field: str) -> object:
        """Imports what a registration names in one of its fields, such as ``registry.load("s3", "factory")``.

        Raises:
            UnknownNameError: Nothing provides the name.
            MissingExtraError: An optional dependency of Inset is not installed; the extra is named.
            PluginLoadError: The import fails; the plugin is named.
        """
        target = getattr(self.get(name), field)
        what = f"The {self.kind} {name!r} of {_whose(self.owner_of(name))}"
        try:
            return load_object(target)
        except ModuleNotFoundError as error:
            extra = find_extra(error)
            if extra is not None:
                raise MissingExtraError(f"{what} needs {error.name}: pip install 'inset[{extra}]'.") from error
            raise PluginLoadError(f"{what} cannot be loaded from {target!r}: {error}.") from error
        except (Exception, SystemExit) as error:  # a plugin's code may raise anything while it is imported
            raise PluginLoadError(f"{what} cannot be loaded from {target!r}: {type(error).__name__}: {error}") from error

    def merge(self, staged: Registry[T]) -> None:
        """Takes over all entries of another registry with their owners, or none at all.

        Raises:
            DuplicateNameError: One of the names is taken.
        """
        for key in staged._entries:
            if key in self._entries:
                raise DuplicateNameError(describe_clash(self.kind, key, self._owners[key], staged._owners[key]))
        self._entries.update(staged._entries)
        self._owners.update(staged._owners)
        self._spelling.update(staged._spelling)

    def view(self) -> Mapping[str, T]:
        """Returns a read-only view, names in normal form."""
        return MappingProxyType(self._entries)

    def __contains__(self, name: object) -> bool:
        return isinstance(name, str) and normalize_name(name) in self._entries

    def __len__(self) -> int:
        return len(self._entries)

    def __repr__(self) -> str:
        return f"<{type(self).__name__} of {self.kind}s: {', '.join(self.names()) or 'empty'}>"


def describe_clash(kind: str, name: str, first: Owner | None, second: Owner | None) -> str:
    """Returns what to say when two plugins claim one name."""
    return f"The {kind} {name!r} is claimed by {_whose(first)} and by {_whose(second)}."


def _whose(owner: Owner | None) -> str:
    return "code that names no plugin" if owner is None else f"{owner.distribution} {owner.version} (plugin {owner.plugin!r})"
