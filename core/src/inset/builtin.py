"""The built-in plugin of the core: its own hook implementations, found through its entry point like any other."""

from __future__ import annotations

from typing import TYPE_CHECKING

from inset import hookimpl

if TYPE_CHECKING:
    from inset.checkpoint import Checkpoint
    from inset.inputs import MediaIOFactory
    from inset.registry import MediaConnectorRegistry, ProcessorCacheRegistry


@hookimpl
def register_media_connectors(registry: MediaConnectorRegistry) -> None:
    """Adds what needs no further package: inline data, HTTP, and local files under a folder that the operator names."""
    registry.register("data", factory="inset.media.data_url:DataUrlConnector", schemes=("data",))
    registry.register("file", factory="inset.media.local:FileConnector", schemes=("file",))
    registry.register("http", factory="inset.media.http:HttpConnector", schemes=("http", "https"))


@hookimpl
def register_processor_caches(registry: ProcessorCacheRegistry) -> None:
    """Adds the types that need no further package; with several front ends only `processor_only` can be used."""
    registry.register("lru", front="inset.cache.lru:LruCacheFront", engine="inset.cache.lru:LruCacheEngine")
    registry.register(
        "processor_only",
        front="inset.cache.processor_only:ProcessorOnlyCacheFront",
        engine="inset.cache.processor_only:ProcessorOnlyCacheEngine",
        supports_multiple_fronts=True,
    )
    registry.register("shm", front="inset.cache.shm:ShmCacheFront", engine="inset.cache.shm:ShmCacheEngine")


@hookimpl
def get_media_io(modality: str, info: Checkpoint) -> MediaIOFactory | None:
    """Returns the core's decoder of the modality; it is asked last."""
    from inset.media.io import find_decoder  # here, because listing plugins needs no media

    return find_decoder(modality)
