"""Which processor cache type serves, and its two halves."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, cast

from inset.errors import ConfigError

if TYPE_CHECKING:
    from inset.cache.base import ProcessorCacheEngine, ProcessorCacheFront
    from inset.config import CacheConfig
    from inset.plugins import PluginHost

__all__ = ["CACHE_WITHOUT_ENGINE", "choose_cache_type", "make_cache_front", "make_cache_halves"]

CACHE_WITHOUT_ENGINE: Final = "processor_only"
"""The cache type whose front half has the tensors."""


def choose_cache_type(config: CacheConfig, *, num_fronts: int, host: PluginHost) -> str | None:
    """Returns the processor cache's type, or None where it is off.

    Raises:
        ConfigError: The type asked for serves one front end alone, and there are several.
        UnknownNameError: There is no such type.
    """
    if config.mm_processor_cache_gb <= 0:
        return None
    name = config.mm_processor_cache_type or ("lru" if num_fronts == 1 else "processor_only")
    if not host.registries.processor_caches.get(name).supports_multiple_fronts and num_fronts > 1:
        raise ConfigError(
            f"--mm-processor-cache-type {name} serves one front end, and --api-server-count is {num_fronts}: "
            "choose processor_only, or one front end."
        )
    return name


def make_cache_front(name: str, config: CacheConfig, host: PluginHost) -> ProcessorCacheFront:
    """Returns the front half of a processor cache type."""
    kind = cast("type[ProcessorCacheFront]", host.registries.processor_caches.load(name, "front"))
    return kind.from_config(config)


def make_cache_halves(name: str, config: CacheConfig, host: PluginHost) -> tuple[ProcessorCacheFront, ProcessorCacheEngine]:
    """Returns both halves of a processor cache type for one process, joined."""
    front = make_cache_front(name, config, host)
    engine = cast("type[ProcessorCacheEngine]", host.registries.processor_caches.load(name, "engine")).from_config(config)
    export = front.export()
    if export is not None:
        engine.attach(export)
    return front, engine
