"""Names to import strings: what a plugin registers, who registered it, and how it is loaded on first use."""

from __future__ import annotations

import importlib
import importlib.util
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Generic, TypeVar

from inset.errors import DuplicateNameError, PluginContractError, UnknownNameError

__all__ = [
    "CheckpointRegistration",
    "CheckpointRegistry",
    "ConnectorRegistration",
    "MediaConnectorRegistry",
    "ModelRegistration",
    "ModelRegistry",
    "Owner",
    "ProcessorCacheRegistration",
    "ProcessorCacheRegistry",
    "ProcessorRegistration",
    "ProcessorRegistry",
    "Registry",
    "load_object",
    "normalize_name",
]

T = TypeVar("T")

_TARGET = re.compile(r"[A-Za-z_][\w.]*:[A-Za-z_]\w*")


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
        ImportError: The module cannot be imported; the caller knows which plugin to name.
    """
    module_name, _, attribute = target.partition(":")
    module = importlib.import_module(module_name)
    try:
        return getattr(module, attribute)
    except AttributeError as error:
        raise PluginContractError(f"Module {module_name!r} has no attribute {attribute!r}.") from error


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

    def __init__(self, kind: str) -> None:
        self.kind = kind
        self.owner: Owner | None = None
        self._entries: dict[str, T] = {}
        self._owners: dict[str, Owner | None] = {}
        self._spelling: dict[str, str] = {}

    def add(self, name: str, registration: T) -> None:
        """Adds a registration under a name.

        Raises:
            DuplicateNameError: The name is taken; both distributions are named.
            PluginContractError: The name is not text.
        """
        key = normalize_name(name)
        if key in self._entries:
            raise DuplicateNameError(
                f"The {self.kind} {name!r} is claimed by {_whose(self._owners[key])} and by {_whose(self.owner)}. "
                f"Leave one of them out with --no-plugin NAME or INSET_PLUGINS."
            )
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
            there_is = ", ".join(sorted(self._spelling.values())) or "none"
            raise UnknownNameError(
                f"There is no {self.kind} {name!r}. Installed: {there_is}. `inset plugins list` shows what was set aside, and why."
            ) from None

    def owner_of(self, name: str) -> Owner | None:
        """Returns the plugin that registered a name, or None where code did so without a plugin."""
        self.get(name)
        return self._owners[normalize_name(name)]

    def merge(self, staged: Registry[T]) -> None:
        """Takes over all entries of another registry with their owners, or none at all.

        Raises:
            DuplicateNameError: One of the names is taken.
        """
        for key in staged._entries:
            if key in self._entries:
                other = staged._owners[key]
                raise DuplicateNameError(
                    f"The {self.kind} {key!r} is claimed by {_whose(self._owners[key])} and by {_whose(other)}. "
                    f"Leave one of them out with --no-plugin NAME or INSET_PLUGINS."
                )
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
        return f"<{type(self).__name__} of {self.kind}s: {', '.join(sorted(self._entries)) or 'empty'}>"


def _whose(owner: Owner | None) -> str:
    return "code that names no plugin" if owner is None else f"{owner.distribution} {owner.version} (plugin {owner.plugin!r})"


def check_target(kind: str, field: str, target: object) -> str:
    """Returns an import string that has the right form.

    Raises:
        PluginContractError: It is not text of the form ``"package.module:attribute"``.
    """
    if not isinstance(target, str) or not _TARGET.fullmatch(target):
        raise PluginContractError(f"{field} of a {kind} must be an import string such as 'package.module:Class', not {target!r}.")
    return target


@dataclass(frozen=True, slots=True)
class ProcessorRegistration:
    """Import strings of what serves one model_type: a `MultiModalProcessor`, a `ProcessingInfo`, a `DummyInputsBuilder`."""

    processor: str
    info: str
    dummy_inputs: str


class ProcessorRegistry(Registry[ProcessorRegistration]):
    """model_type of a checkpoint's config.json -> its processor."""

    def __init__(self) -> None:
        super().__init__("processor")

    def register(self, model_type: str, *, processor: str, info: str, dummy_inputs: str) -> None:
        """Registers import strings for one model_type."""
        registration = ProcessorRegistration(
            processor=check_target(self.kind, "processor", processor),
            info=check_target(self.kind, "info", info),
            dummy_inputs=check_target(self.kind, "dummy_inputs", dummy_inputs),
        )
        self.add(model_type, registration)


@dataclass(frozen=True, slots=True)
class ModelRegistration:
    """Import string of a `ModelAdapter` class."""

    adapter: str


class ModelRegistry(Registry[ModelRegistration]):
    """Architecture in a checkpoint's config.json, such as ``LlavaForConditionalGeneration`` -> its adapter."""

    def __init__(self) -> None:
        super().__init__("model architecture")

    def register(self, architecture: str, *, adapter: str) -> None:
        """Registers the import string of a `ModelAdapter` for one architecture."""
        self.add(architecture, ModelRegistration(adapter=check_target(self.kind, "adapter", adapter)))


@dataclass(frozen=True, slots=True)
class ConnectorRegistration:
    """A media connector that can be built.

    Attributes:
        factory: Import string of a `MediaConnector` class, or of a callable that takes the same keyword options and returns one.
        schemes: URL schemes that it serves, lower case, without the colon.
        dials_itself: It opens connections without the core's HTTP client, so that the core's address and redirect rules cannot hold
            for it; the operator is told so.
    """

    factory: str
    schemes: tuple[str, ...]
    dials_itself: bool = False


class MediaConnectorRegistry(Registry[ConnectorRegistration]):
    """Connector name -> how to build it."""

    def __init__(self) -> None:
        super().__init__("media connector")

    def register(self, name: str, *, factory: str, schemes: Sequence[str], dials_itself: bool = False) -> None:
        """Registers a connector for URL schemes; it serves none until the operator names it (``--media-connector NAME``)."""
        if (
            isinstance(schemes, str)
            or not schemes
            or not all(isinstance(s, str) and re.fullmatch(r"[a-z][a-z0-9+.-]*", s) for s in schemes)
        ):
            raise PluginContractError(f"schemes of the {self.kind} {name!r} must be a tuple of lower-case URL schemes, not {schemes!r}.")
        self.add(name, ConnectorRegistration(check_target(self.kind, "factory", factory), tuple(schemes), bool(dials_itself)))


@dataclass(frozen=True, slots=True)
class ProcessorCacheRegistration:
    """Import strings of the two halves of a processor cache type.

    Attributes:
        front: A `ProcessorCacheFront`, where requests are processed.
        engine: A `ProcessorCacheEngine`, where tensors are used.
        supports_multiple_fronts: Several front ends may each have one against one engine core.
    """

    front: str
    engine: str
    supports_multiple_fronts: bool = False


class ProcessorCacheRegistry(Registry[ProcessorCacheRegistration]):
    """Cache type -> its two halves."""

    def __init__(self) -> None:
        super().__init__("processor cache type")

    def register(self, name: str, *, front: str, engine: str, supports_multiple_fronts: bool = False) -> None:
        """Registers both halves of a processor cache type."""
        registration = ProcessorCacheRegistration(
            front=check_target(self.kind, "front", front),
            engine=check_target(self.kind, "engine", engine),
            supports_multiple_fronts=bool(supports_multiple_fronts),
        )
        self.add(name, registration)


@dataclass(frozen=True, slots=True)
class CheckpointRegistration:
    """A checkpoint folder shipped inside a package."""

    locate: Callable[[], Path]


class CheckpointRegistry(Registry[CheckpointRegistration]):
    """Short name -> folder of a shipped checkpoint."""

    def __init__(self) -> None:
        super().__init__("checkpoint")

    def register(self, name: str, *, package: str, folder: str) -> None:
        """Registers a folder inside a package; the package is not imported until the checkpoint is used."""
        if not all(isinstance(value, str) and value for value in (package, folder)):
            raise PluginContractError(f"package and folder of the {self.kind} {name!r} must be text.")

        def locate() -> Path:
            spec = importlib.util.find_spec(package)
            if spec is None or not spec.submodule_search_locations:
                raise UnknownNameError(f"The package {package!r} of the checkpoint {name!r} is not installed.")
            return Path(next(iter(spec.submodule_search_locations))) / folder

        self.add(name, CheckpointRegistration(locate))
