"""The plugin author's one door: everything that a plugin may import besides `inset` itself.

Each name is imported when it is first used, so that a processor never pays for torch and listing plugins pays for nothing.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from inset.cache.base import (
        CacheExport,
        CacheMessage,
        CacheStats,
        CacheTransaction,
        CommittedItem,
        ItemToCommit,
        MultiModalCacheMissError,
        ProcessedItem,
        ProcessorCacheEngine,
        ProcessorCacheFront,
    )
    from inset.checkpoint import Checkpoint, load_checkpoint
    from inset.config import MediaConfig
    from inset.errors import (
        AuthenticationError,
        ClientError,
        ConfigError,
        DuplicateNameError,
        EncoderError,
        EngineDeadError,
        InsetError,
        InvalidRequestError,
        InvariantError,
        ItemLimitError,
        ItemTooLargeError,
        MediaDecodeError,
        MediaError,
        MediaFetchError,
        MediaNotCachedError,
        MediaPolicyError,
        MediaTimeoutError,
        MissingExtraError,
        ModelNotFoundError,
        OverloadedError,
        PlaceholderError,
        PluginContractError,
        PluginError,
        PluginLoadError,
        PromptTooLongError,
        ServerError,
        TooLargeError,
        TransientFetchError,
        UnknownNameError,
        UuidConflictError,
    )
    from inset.identity import JSON, DecodeSpec, canonical_json
    from inset.inputs import ItemPlan, ItemTensors, MediaIOFactory, MultiModalFeature, PlaceholderRange, ProcessedPrompt, runs_from_mask
    from inset.media.connector import ConnectorContext, MediaConnector
    from inset.media.decoded import AudioSamples, ImagePixels, VideoFrames
    from inset.media.header import MediaHeader
    from inset.media.image import ImageIO
    from inset.media.io import MediaIO
    from inset.media.options import MediaOptions
    from inset.media.ref import MediaRef
    from inset.media.stream import ByteStream, FetchLimits, Validators
    from inset.media.url import MediaUrl
    from inset.modeling.attention import own_attention, read_attention_layers
    from inset.modeling.interfaces import AttentionLayerSpec, LoadOptions, ModelAdapter, PromptPositions
    from inset.modeling.loading import build_module, load_weights
    from inset.processing.dummy_inputs import DummyInputsBuilder
    from inset.processing.info import ProcessingContext, ProcessingInfo
    from inset.processing.processor import MultiModalProcessor
    from inset.processing.prompt_updates import PlaceholderContent, PromptInsertion, PromptReplacement, PromptUpdate
    from inset.processing.resize import center_crop, check_resample, pad_to_square, resize_peak_bytes, resize_pixels, shortest_edge_size
    from inset.registry import CheckpointRegistry, MediaConnectorRegistry, ModelRegistry, ProcessorCacheRegistry, ProcessorRegistry

__all__ = [
    "JSON",
    "AttentionLayerSpec",
    "AudioSamples",
    "AuthenticationError",
    "ByteStream",
    "CacheExport",
    "CacheMessage",
    "CacheStats",
    "CacheTransaction",
    "Checkpoint",
    "CheckpointRegistry",
    "ClientError",
    "CommittedItem",
    "ConfigError",
    "ConnectorContext",
    "DecodeSpec",
    "DummyInputsBuilder",
    "DuplicateNameError",
    "EncoderError",
    "EngineDeadError",
    "FetchLimits",
    "ImageIO",
    "ImagePixels",
    "InsetError",
    "InvalidRequestError",
    "InvariantError",
    "ItemLimitError",
    "ItemPlan",
    "ItemTensors",
    "ItemToCommit",
    "ItemTooLargeError",
    "LoadOptions",
    "MediaConfig",
    "MediaConnector",
    "MediaConnectorRegistry",
    "MediaDecodeError",
    "MediaError",
    "MediaFetchError",
    "MediaHeader",
    "MediaIO",
    "MediaIOFactory",
    "MediaNotCachedError",
    "MediaOptions",
    "MediaPolicyError",
    "MediaRef",
    "MediaTimeoutError",
    "MediaUrl",
    "MissingExtraError",
    "ModelAdapter",
    "ModelNotFoundError",
    "ModelRegistry",
    "MultiModalCacheMissError",
    "MultiModalFeature",
    "MultiModalProcessor",
    "OverloadedError",
    "PlaceholderContent",
    "PlaceholderError",
    "PlaceholderRange",
    "PluginContractError",
    "PluginError",
    "PluginLoadError",
    "ProcessedItem",
    "ProcessedPrompt",
    "ProcessingContext",
    "ProcessingInfo",
    "ProcessorCacheEngine",
    "ProcessorCacheFront",
    "ProcessorCacheRegistry",
    "ProcessorRegistry",
    "PromptInsertion",
    "PromptPositions",
    "PromptReplacement",
    "PromptTooLongError",
    "PromptUpdate",
    "ServerError",
    "TooLargeError",
    "TransientFetchError",
    "UnknownNameError",
    "UuidConflictError",
    "Validators",
    "VideoFrames",
    "build_module",
    "canonical_json",
    "center_crop",
    "check_resample",
    "load_checkpoint",
    "load_weights",
    "own_attention",
    "pad_to_square",
    "read_attention_layers",
    "resize_peak_bytes",
    "resize_pixels",
    "runs_from_mask",
    "shortest_edge_size",
]

_HOMES: Final = {
    "JSON": "inset.identity",
    "AttentionLayerSpec": "inset.modeling.interfaces",
    "AudioSamples": "inset.media.decoded",
    "AuthenticationError": "inset.errors",
    "ByteStream": "inset.media.stream",
    "CacheExport": "inset.cache.base",
    "CacheMessage": "inset.cache.base",
    "CacheStats": "inset.cache.base",
    "CacheTransaction": "inset.cache.base",
    "Checkpoint": "inset.checkpoint",
    "CheckpointRegistry": "inset.registry",
    "ClientError": "inset.errors",
    "CommittedItem": "inset.cache.base",
    "ConfigError": "inset.errors",
    "ConnectorContext": "inset.media.connector",
    "DecodeSpec": "inset.identity",
    "DummyInputsBuilder": "inset.processing.dummy_inputs",
    "DuplicateNameError": "inset.errors",
    "EncoderError": "inset.errors",
    "EngineDeadError": "inset.errors",
    "FetchLimits": "inset.media.stream",
    "ImageIO": "inset.media.image",
    "ImagePixels": "inset.media.decoded",
    "InsetError": "inset.errors",
    "InvalidRequestError": "inset.errors",
    "InvariantError": "inset.errors",
    "ItemLimitError": "inset.errors",
    "ItemPlan": "inset.inputs",
    "ItemTensors": "inset.inputs",
    "ItemToCommit": "inset.cache.base",
    "ItemTooLargeError": "inset.errors",
    "LoadOptions": "inset.modeling.interfaces",
    "MediaConfig": "inset.config",
    "MediaConnector": "inset.media.connector",
    "MediaConnectorRegistry": "inset.registry",
    "MediaDecodeError": "inset.errors",
    "MediaError": "inset.errors",
    "MediaFetchError": "inset.errors",
    "MediaHeader": "inset.media.header",
    "MediaIO": "inset.media.io",
    "MediaIOFactory": "inset.inputs",
    "MediaNotCachedError": "inset.errors",
    "MediaOptions": "inset.media.options",
    "MediaPolicyError": "inset.errors",
    "MediaRef": "inset.media.ref",
    "MediaTimeoutError": "inset.errors",
    "MediaUrl": "inset.media.url",
    "MissingExtraError": "inset.errors",
    "ModelAdapter": "inset.modeling.interfaces",
    "ModelNotFoundError": "inset.errors",
    "ModelRegistry": "inset.registry",
    "MultiModalCacheMissError": "inset.cache.base",
    "MultiModalFeature": "inset.inputs",
    "MultiModalProcessor": "inset.processing.processor",
    "OverloadedError": "inset.errors",
    "PlaceholderContent": "inset.processing.prompt_updates",
    "PlaceholderError": "inset.errors",
    "PlaceholderRange": "inset.inputs",
    "PluginContractError": "inset.errors",
    "PluginError": "inset.errors",
    "PluginLoadError": "inset.errors",
    "ProcessedItem": "inset.cache.base",
    "ProcessedPrompt": "inset.inputs",
    "ProcessingContext": "inset.processing.info",
    "ProcessingInfo": "inset.processing.info",
    "ProcessorCacheEngine": "inset.cache.base",
    "ProcessorCacheFront": "inset.cache.base",
    "ProcessorCacheRegistry": "inset.registry",
    "ProcessorRegistry": "inset.registry",
    "PromptInsertion": "inset.processing.prompt_updates",
    "PromptPositions": "inset.modeling.interfaces",
    "PromptReplacement": "inset.processing.prompt_updates",
    "PromptTooLongError": "inset.errors",
    "PromptUpdate": "inset.processing.prompt_updates",
    "ServerError": "inset.errors",
    "TooLargeError": "inset.errors",
    "TransientFetchError": "inset.errors",
    "UnknownNameError": "inset.errors",
    "UuidConflictError": "inset.errors",
    "Validators": "inset.media.stream",
    "VideoFrames": "inset.media.decoded",
    "build_module": "inset.modeling.loading",
    "canonical_json": "inset.identity",
    "center_crop": "inset.processing.resize",
    "check_resample": "inset.processing.resize",
    "load_checkpoint": "inset.checkpoint",
    "load_weights": "inset.modeling.loading",
    "own_attention": "inset.modeling.attention",
    "pad_to_square": "inset.processing.resize",
    "read_attention_layers": "inset.modeling.attention",
    "resize_peak_bytes": "inset.processing.resize",
    "resize_pixels": "inset.processing.resize",
    "runs_from_mask": "inset.inputs",
    "shortest_edge_size": "inset.processing.resize",
}

if not TYPE_CHECKING:  # a type checker shall know these names alone

    def __getattr__(name: str) -> object:
        if name not in _HOMES:
            raise AttributeError(f"module 'inset.api' has no attribute {name!r}")
        value = getattr(importlib.import_module(_HOMES[name]), name)
        globals()[name] = value
        return value


def __dir__() -> list[str]:
    return sorted(__all__)
