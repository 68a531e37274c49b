"""Builds the processor of a checkpoint from what plugins have registered."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, NamedTuple, TypeVar

from inset.config import MediaConfig, ModelConfig
from inset.errors import InsetError, PluginContractError, PluginLoadError, UnknownNameError
from inset.processing.dummy_inputs import DummyInputsBuilder
from inset.processing.info import ProcessingContext, ProcessingInfo
from inset.processing.operator_options import check_operator_options
from inset.processing.processor import MultiModalProcessor
from inset.processing.tokenizer import Tokenizer
from inset.registry import Owner, ProcessorRegistry, load_object

if TYPE_CHECKING:
    from inset.cache.base import ProcessorCacheFront
    from inset.checkpoint import Checkpoint
    from inset.inputs import MediaIOFactory
    from inset.processing.apply_state import MediaPool

__all__ = ["BuiltProcessor", "build_processor"]

T = TypeVar("T")


class BuiltProcessor(NamedTuple):
    """What serves one checkpoint's prompts.

    Attributes:
        processor: The processor; its `info` holds limits, decoders and the tokenizer.
        dummy_inputs: Makes the largest items.
    """

    processor: MultiModalProcessor
    dummy_inputs: DummyInputsBuilder


def build_processor(
    registry: ProcessorRegistry,
    checkpoint: Checkpoint,
    *,
    media_io_factories: Mapping[str, MediaIOFactory],
    pool: MediaPool,
    cache: ProcessorCacheFront | None = None,
    model_config: ModelConfig | None = None,
    media_config: MediaConfig | None = None,
    tokenizer: Tokenizer | None = None,
) -> BuiltProcessor:
    """Returns the processor that a plugin registered for the checkpoint's model_type.

    Args:
        registry: What the plugins have registered.
        checkpoint: The checkpoint.
        media_io_factories: Modality -> what makes its decoders, as `PluginHost.get_media_io` finds it.
        pool: Where items are decoded and materialised; the caller closes it.
        cache: Front half of the processor cache, or None.
        model_config: Limits and processor options of the operator.
        media_config: Decode options of the operator.
        tokenizer: The checkpoint's tokenizer where the caller has read it already.

    Raises:
        UnknownNameError: No plugin serves this model_type.
        PluginLoadError: The plugin's module cannot be imported.
        PluginContractError: It registered something of another type.
        ConfigError: The checkpoint or an option cannot be served.
    """
    model_config = model_config or ModelConfig()
    try:
        registration = registry.get(checkpoint.model_type)
    except UnknownNameError as error:
        raise UnknownNameError(f"{error.message} Install the plugin of that model family, such as inset-llava or inset-qwen-vl.") from error
    owner = registry.owner_of(checkpoint.model_type) or Owner("", "", "")
    context = ProcessingContext(
        checkpoint=checkpoint,
        tokenizer=tokenizer or Tokenizer.from_checkpoint(checkpoint),
        media_io_factories=media_io_factories,
        mm_processor_kwargs=model_config.mm_processor_kwargs,
        media_config=media_config or MediaConfig(),
        limit_mm_per_prompt=model_config.limit_mm_per_prompt,
        max_model_len=model_config.max_model_len,
        distribution=owner.distribution,
        version=owner.version,
    )
    info = _load_class(registration.info, ProcessingInfo, owner)(context)  # type: ignore[type-abstract]
    processor_class = _load_class(registration.processor, MultiModalProcessor, owner)  # type: ignore[type-abstract]
    dummy_inputs_class = _load_class(registration.dummy_inputs, DummyInputsBuilder, owner)  # type: ignore[type-abstract]
    processor = processor_class(info, pool=pool, cache=cache)
    check_operator_options(processor)
    return BuiltProcessor(processor, dummy_inputs_class(info))


def _load_class(target: str, kind: type[T], owner: Owner) -> type[T]:
    try:
        loaded = load_object(target)
    except InsetError:
        raise
    except Exception as error:
        raise PluginLoadError(f"Plugin {owner.plugin!r}: {target!r} cannot be imported: {type(error).__name__}: {error}") from error
    if not isinstance(loaded, type) or not issubclass(loaded, kind):
        raise PluginContractError(f"Plugin {owner.plugin!r} registered {target!r}, which is no {kind.__name__}.")
    return loaded
