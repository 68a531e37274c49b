"""What plugins register: one registration and one registry for each kind."""

from __future__ import annotations

import importlib.util
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar, Final

from inset.errors import PluginContractError, UnknownNameError
from inset.registry.table import Registry

__all__ = [
    "CheckpointRegistration",
    "CheckpointRegistry",
    "ConnectorRegistration",
    "MediaConnectorRegistry",
    "ModelRegistration",
    "ModelRegistry",
    "ProcessorCacheRegistration",
    "ProcessorCacheRegistry",
    "ProcessorRegistration",
    "ProcessorRegistry",
    "is_scheme",
]

_SCHEME: Final = re.compile(r"[a-z][a-z0-9+.-]*(\+\*)?")
_TARGET: Final = re.compile(r"[A-Za-z_][\w.]*:[A-Za-z_]\w*")


def is_scheme(text: str) -> bool:
    """Tells whether a connector can serve this: a lower-case URL scheme, or a prefix for others such as ``zip+*``."""
    return _SCHEME.fullmatch(text) is not None


def _check_target(kind: str, field: str, target: object) -> str:
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

    import_strings: ClassVar[tuple[str, ...]] = ("processor", "info", "dummy_inputs")

    processor: str
    info: str
    dummy_inputs: str


class ProcessorRegistry(Registry[ProcessorRegistration]):
    """model_type of a checkpoint's config.json -> its processor."""

    def __init__(self) -> None:
        super().__init__("processor", ProcessorRegistration)

    def register(self, model_type: str, *, processor: str, info: str, dummy_inputs: str) -> None:
        """Registers import strings for one model_type."""
        registration = ProcessorRegistration(
            processor=_check_target(self.kind, "processor", processor),
            info=_check_target(self.kind, "info", info),
            dummy_inputs=_check_target(self.kind, "dummy_inputs", dummy_inputs),
        )
        self.add(model_type, registration)


@dataclass(frozen=True, slots=True)
class ModelRegistration:
    """Import string of a `ModelAdapter` class."""

    import_strings: ClassVar[tuple[str, ...]] = ("adapter",)

    adapter: str


class ModelRegistry(Registry[ModelRegistration]):
    """Architecture in a checkpoint's config.json, such as ``LlavaForConditionalGeneration`` -> its adapter."""

    def __init__(self) -> None:
        super().__init__("model architecture", ModelRegistration)

    def register(self, architecture: str, *, adapter: str) -> None:
        """Registers the import string of a `ModelAdapter` for one architecture."""
        self.add(architecture, ModelRegistration(adapter=_check_target(self.kind, "adapter", adapter)))


@dataclass(frozen=True, slots=True)
class ConnectorRegistration:
    """A media connector that can be built.

    Attributes:
        factory: Import string of a `MediaConnector` class, or of a callable that takes the same keyword options and returns one.
        schemes: URL schemes that it serves, lower case, without the colon; ``zip+*`` stands for ``zip+`` and any other scheme.
        dials_itself: It opens connections without the core's HTTP client, so that the core's address and redirect rules cannot hold
            for it; the operator is told so.
    """

    import_strings: ClassVar[tuple[str, ...]] = ("factory",)

    factory: str
    schemes: tuple[str, ...]
    dials_itself: bool = False


class MediaConnectorRegistry(Registry[ConnectorRegistration]):
    """Connector name -> how to build it."""

    def __init__(self) -> None:
        super().__init__("media connector", ConnectorRegistration)

    def register(self, name: str, *, factory: str, schemes: Sequence[str], dials_itself: bool = False) -> None:
        """Registers a connector for URL schemes; it serves none until the operator names it (``--media-connector NAME``)."""
        if isinstance(schemes, str) or not schemes or not all(isinstance(s, str) and is_scheme(s) for s in schemes):
            raise PluginContractError(f"schemes of the {self.kind} {name!r} must be a tuple of lower-case URL schemes, not {schemes!r}.")
        self.add(name, ConnectorRegistration(_check_target(self.kind, "factory", factory), tuple(schemes), bool(dials_itself)))


@dataclass(frozen=True, slots=True)
class ProcessorCacheRegistration:
    """Import strings of the two halves of a processor cache type.

    Attributes:
        front: A `ProcessorCacheFront`, where requests are processed.
        engine: A `ProcessorCacheEngine`, where tensors are used.
        supports_multiple_fronts: Several front ends may each have one against one engine core.
    """

    import_strings: ClassVar[tuple[str, ...]] = ("front", "engine")

    front: str
    engine: str
    supports_multiple_fronts: bool = False


class ProcessorCacheRegistry(Registry[ProcessorCacheRegistration]):
    """Cache type -> its two halves."""

    def __init__(self) -> None:
        super().__init__("processor cache type", ProcessorCacheRegistration)

    def register(self, name: str, *, front: str, engine: str, supports_multiple_fronts: bool = False) -> None:
        """Registers both halves of a processor cache type."""
        registration = ProcessorCacheRegistration(
            front=_check_target(self.kind, "front", front),
            engine=_check_target(self.kind, "engine", engine),
            supports_multiple_fronts=bool(supports_multiple_fronts),
        )
        self.add(name, registration)


@dataclass(frozen=True, slots=True)
class CheckpointRegistration:
    """A checkpoint folder shipped inside a package."""

    import_strings: ClassVar[tuple[str, ...]] = ()

    locate: Callable[[], Path]


class CheckpointRegistry(Registry[CheckpointRegistration]):
    """Short name -> folder of a shipped checkpoint."""

    def __init__(self) -> None:
        super().__init__("checkpoint", CheckpointRegistration)

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
