"""The hooks that a plugin may implement: markers and signatures, nothing else.

They are called in the process that builds a core: the collecting ones while it is built, `get_media_io` once for each modality, and none
per request.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import pluggy

if TYPE_CHECKING:
    from inset.checkpoint import Checkpoint
    from inset.inputs import MediaIOFactory
    from inset.registry import (
        CheckpointRegistry,
        MediaConnectorRegistry,
        ModelRegistry,
        ProcessorCacheRegistry,
        ProcessorRegistry,
    )

__all__ = [
    "PROJECT",
    "get_media_io",
    "hookimpl",
    "hookspec",
    "register_checkpoints",
    "register_media_connectors",
    "register_models",
    "register_processor_caches",
    "register_processors",
]

PROJECT = "inset"
hookspec = pluggy.HookspecMarker(PROJECT)
hookimpl = pluggy.HookimplMarker(PROJECT)


@hookspec
def register_processors(registry: ProcessorRegistry) -> None:
    """Adds model_type -> processor, processing info and dummy inputs, as import strings.

    Called once for each core, in every process. The names are those of ``model_type`` in a checkpoint's
    config.json. Nothing is imported until a checkpoint of that type is served.
    """


@hookspec
def register_models(registry: ModelRegistry) -> None:
    """Adds architecture -> model adapter, as an import string.

    Called once for each core, in every process. Only the process that runs the model imports the adapter.
    """


@hookspec
def register_media_connectors(registry: MediaConnectorRegistry) -> None:
    """Adds name -> media connector with the URL schemes that it serves.

    Called once for each core, in every process. A connector serves no URL until the operator names it.
    """


@hookspec
def register_processor_caches(registry: ProcessorCacheRegistry) -> None:
    """Adds cache type -> front half and engine half, as import strings.

    Called once for each core, in every process. The operator chooses with ``--mm-processor-cache-type``.
    """


@hookspec(firstresult=True)
def get_media_io(modality: str, info: Checkpoint) -> MediaIOFactory | None:
    """Returns a factory of MediaIOs for a model's modality, or None to leave the choice to others.

    Called once for each modality of a checkpoint, when its first decoder is needed; `info` holds the checkpoint's configs. The plugin that
    registered the checkpoint's processor is asked first, then the others in the order of their names, and the core's own last; the
    first answer that is not None is taken. The factory is called per request as ``factory(options, media_config)``, with the media IO
    options of that request, so it must be cheap and without side effects; the class of a `MediaIO` is one.
    """


@hookspec
def register_checkpoints(registry: CheckpointRegistry) -> None:
    """Adds short name -> folder of a checkpoint that is shipped inside a package, so that `inset serve NAME` finds it.

    Called once for each core, in every process. A folder is looked for when a model is named that is not a folder itself.
    """
