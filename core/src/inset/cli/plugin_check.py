"""The last part of `inset plugins check`: every part is loaded, measured, held against what it must be, and tried if that needs nothing."""

from __future__ import annotations

import inspect
import mmap
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any, Final, NamedTuple, cast

from inset.checkpoint import load_checkpoint
from inset.cli.plugin_trial import NotTriedError, find_media_io, try_connector, try_media_io
from inset.errors import InsetError, PluginContractError
from inset.plugins import PluginHost, PluginReport
from inset.registry import CheckpointRegistration, ConnectorRegistration, Registry, load_object

__all__ = ["check_provisions"]

MIB: Final = 1024**2

BASES: Final = {
    "media connector factory": "inset.media.connector:MediaConnector",
    "model architecture adapter": "inset.modeling.interfaces:ModelAdapter",
    "processor cache type engine": "inset.cache.base:ProcessorCacheEngine",
    "processor cache type front": "inset.cache.base:ProcessorCacheFront",
    "processor dummy_inputs": "inset.processing.dummy_inputs:DummyInputsBuilder",
    "processor info": "inset.processing.info:ProcessingInfo",
    "processor processor": "inset.processing.processor:MultiModalProcessor",
}
"""What each import string must lead to. A media connector may come from any callable."""


class _Part(NamedTuple):
    """One thing to load: a name of a registry and the field of its registration; no field stands for a checkpoint's folder."""

    registry: Registry[Any]
    name: str
    field: str


def check_provisions(host: PluginHost, report: PluginReport) -> bool:
    """Loads every import string that a plugin registered, tries what runs without a checkpoint, prints time and memory of each, and
    returns whether all are right.
    """
    verdicts = [_run(label, work) for label, work in _checks(host, report)]
    failures = verdicts.count(False)
    if failures:
        print(f"{report.name}: {failures} of its parts failed.")
    else:
        print(f"{report.name}: everything that it registers loads, and what can be tried here works.")
    return not failures


def _run(label: str, work: Callable[[], None]) -> bool:
    started, before = time.perf_counter(), _resident_bytes()
    is_well, verdict = True, "ok"
    try:
        work()
    except NotTriedError as error:
        verdict = f"not tried: {error}"
    except InsetError as error:
        is_well, verdict = False, f"FAILED: {error}"
    seconds, grown = time.perf_counter() - started, max(0, _resident_bytes() - before)
    print(f"  {label}: {verdict} ({seconds * 1000:.0f} ms, {grown / MIB:.0f} MiB)")
    return is_well


def _checks(host: PluginHost, report: PluginReport) -> Iterator[tuple[str, Callable[[], None]]]:
    """Yields what is printed of each check, and the check."""
    for part in _parts(host, report):
        yield f"{part.registry.kind} {part.name} {part.field}", partial(_load, part)
        if part.registry is host.registries.media_connectors:
            yield f"{part.registry.kind} {part.name} without a network", partial(_try_connector, host, part)
    if any(item.name == "get_media_io" for item in report.provides):
        yield from _media_io_checks(host, report)


def _media_io_checks(host: PluginHost, report: PluginReport) -> Iterator[tuple[str, Callable[[], None]]]:
    try:
        for modality, model_type, factory in find_media_io(host, report):
            yield f"get_media_io {modality} ({model_type})", partial(try_media_io, modality, factory)
    except (InsetError, NotTriedError) as error:
        yield "get_media_io", partial(_fail, error)


def _try_connector(host: PluginHost, part: _Part) -> None:
    try:
        _load(part)
    except InsetError as error:
        raise NotTriedError("it does not load") from error
    try_connector(host, part.name)


def _fail(error: Exception) -> None:
    raise error


def _parts(host: PluginHost, report: PluginReport) -> Iterator[_Part]:
    for _, registry in host.registries:
        for name in registry.names():
            owner = registry.owner_of(name)
            if owner is not None and owner.plugin == report.name:
                yield from (_Part(registry, name, field) for field in registry.get(name).import_strings or ("folder",))


def _load(part: _Part) -> None:
    registration = part.registry.get(part.name)
    if isinstance(registration, CheckpointRegistration):
        load_checkpoint(registration.locate())
        return
    loaded = part.registry.load(part.name, part.field)
    _check_kind(loaded, f"{part.registry.kind} {part.field}")
    if isinstance(registration, ConnectorRegistration) and isinstance(loaded, type):
        missing = set(registration.schemes) - set(getattr(loaded, "schemes", ()))
        if missing:
            raise PluginContractError(f"{loaded.__name__} is registered for schemes that it does not list: {', '.join(sorted(missing))}.")


def _check_kind(loaded: object, what: str) -> None:
    base = cast("type[object]", load_object(BASES[what]))
    if not isinstance(loaded, type):
        if what != "media connector factory" or not callable(loaded):
            raise PluginContractError(f"It must be a {base.__name__}, not {type(loaded).__name__}.")
    elif not issubclass(loaded, base):
        raise PluginContractError(f"{loaded.__name__} must be a {base.__name__}.")
    elif inspect.isabstract(loaded):
        raise PluginContractError(f"{loaded.__name__} lacks {', '.join(sorted(getattr(loaded, '__abstractmethods__', ())))}.")


def _resident_bytes() -> int:
    """Returns this process's resident memory, or 0 where the system does not say."""
    statm = Path("/proc/self/statm")
    return int(statm.read_text().split()[1]) * mmap.PAGESIZE if statm.exists() else 0
