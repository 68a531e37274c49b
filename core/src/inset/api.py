"""The plugin author's one door: everything that a plugin may import besides `inset` itself.

Each name is imported when it is first used, so that a processor never pays for torch and listing plugins pays for nothing.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from inset.cache.base import CacheTransaction, Flight, ProcessorCacheEngine, ProcessorCacheFront
    from inset.cache.flights import FlightTable
    from inset.cache.front import IndexedFront, IndexedTransaction
    from inset.cache.holds import RequestHolds
    from inset.cache.index import CacheEntry
    from inset.cache.values import (
        CacheExport,
        CacheMessage,
        CacheStats,
        CommittedItem,
        ItemToCommit,
        MultiModalCacheMissError,
        ProcessedItem,
        item_bytes,
        read_only,
    )
    from inset.checkpoint import Checkpoint, load_checkpoint
    from inset.config import CacheConfig, MediaConfig
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
    from inset.media.frame_list import MOST_FRAMES
    from inset.media.header import MediaHeader
    from inset.media.image import ImageIO
    from inset.media.io import MediaIO
    from inset.media.local import open_below, read_file
    from inset.media.options import MediaOptions
    from inset.media.ref import MediaRef
    from inset.media.sampling import VideoFacts, VideoSampler
    from inset.media.single_flight import SingleFlight
    from inset.media.stream import ByteStream, FetchLimits, Validators
    from inset.media.url import MediaUrl
    from inset.media.video import VideoIO
    from inset.modeling.attention import own_attention, read_attention_layers
    from inset.modeling.interfaces import AttentionLayerSpec, EncodedItem, LoadOptions, ModelAdapter, PromptPositions
    from inset.modeling.loading import build_module, load_weights
    from inset.modeling.transformers_adapter import TransformersAdapter, read_config
    from inset.processing.dummy_inputs import DummyInputsBuilder
    from inset.processing.info import ProcessingContext, ProcessingInfo
    from inset.processing.processor import MultiModalProcessor
    from inset.processing.prompt_updates import PlaceholderContent, PromptInsertion, PromptReplacement, PromptUpdate
    from inset.processing.resize import center_crop, check_resample, pad_to_square, resize_peak_bytes, resize_pixels, shortest_edge_size
    from inset.registry import CheckpointRegistry, MediaConnectorRegistry, ModelRegistry, ProcessorCacheRegistry, ProcessorRegistry

__all__ = [
    "JSON",
    "MOST_FRAMES",
    "AttentionLayerSpec",
    "AudioSamples",
    "AuthenticationError",
    "ByteStream",
    "CacheConfig",
    "CacheEntry",
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
    "EncodedItem",
    "EncoderError",
    "EngineDeadError",
    "FetchLimits",
    "Flight",
    "FlightTable",
    "ImageIO",
    "ImagePixels",
    "IndexedFront",
    "IndexedTransaction",
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
    "RequestHolds",
    "ServerError",
    "SingleFlight",
    "TooLargeError",
    "TransformersAdapter",
    "TransientFetchError",
    "UnknownNameError",
    "UuidConflictError",
    "Validators",
    "VideoFacts",
    "VideoFrames",
    "VideoIO",
    "VideoSampler",
    "build_module",
    "canonical_json",
    "center_crop",
    "check_resample",
    "item_bytes",
    "load_checkpoint",
    "load_weights",
    "open_below",
    "own_attention",
    "pad_to_square",
    "read_attention_layers",
    "read_config",
    "read_file",
    "read_only",
    "resize_peak_bytes",
    "resize_pixels",
    "runs_from_mask",
    "shortest_edge_size",
]

_HOMES: Final = {
    "JSON": "inset.identity",
    "MOST_FRAMES": "inset.media.frame_list",
    "AttentionLayerSpec": "inset.modeling.interfaces",
    "AudioSamples": "inset.media.decoded",
    "AuthenticationError": "inset.errors",
    "ByteStream": "inset.media.stream",
    "CacheConfig": "inset.config",
    "CacheEntry": "inset.cache.index",
    "CacheExport": "inset.cache.values",
    "CacheMessage": "inset.cache.values",
    "CacheStats": "inset.cache.values",
    "CacheTransaction": "inset.cache.base",
    "Checkpoint": "inset.checkpoint",
    "CheckpointRegistry": "inset.registry",
    "ClientError": "inset.errors",
    "CommittedItem": "inset.cache.values",
    "ConfigError": "inset.errors",
    "ConnectorContext": "inset.media.connector",
    "DecodeSpec": "inset.identity",
    "DummyInputsBuilder": "inset.processing.dummy_inputs",
    "DuplicateNameError": "inset.errors",
    "EncodedItem": "inset.modeling.interfaces",
    "EncoderError": "inset.errors",
    "EngineDeadError": "inset.errors",
    "FetchLimits": "inset.media.stream",
    "Flight": "inset.cache.base",
    "FlightTable": "inset.cache.flights",
    "ImageIO": "inset.media.image",
    "ImagePixels": "inset.media.decoded",
    "IndexedFront": "inset.cache.front",
    "IndexedTransaction": "inset.cache.front",
    "InsetError": "inset.errors",
    "InvalidRequestError": "inset.errors",
    "InvariantError": "inset.errors",
    "ItemLimitError": "inset.errors",
    "ItemPlan": "inset.inputs",
    "ItemTensors": "inset.inputs",
    "ItemToCommit": "inset.cache.values",
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
    "MultiModalCacheMissError": "inset.cache.values",
    "MultiModalFeature": "inset.inputs",
    "MultiModalProcessor": "inset.processing.processor",
    "OverloadedError": "inset.errors",
    "PlaceholderContent": "inset.processing.prompt_updates",
    "PlaceholderError": "inset.errors",
    "PlaceholderRange": "inset.inputs",
    "PluginContractError": "inset.errors",
    "PluginError": "inset.errors",
    "PluginLoadError": "inset.errors",
    "ProcessedItem": "inset.cache.values",
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
    "RequestHolds": "inset.cache.holds",
    "ServerError": "inset.errors",
    "SingleFlight": "inset.media.single_flight",
    "TooLargeError": "inset.errors",
    "TransformersAdapter": "inset.modeling.transformers_adapter",
    "TransientFetchError": "inset.errors",
    "UnknownNameError": "inset.errors",
    "UuidConflictError": "inset.errors",
    "Validators": "inset.media.stream",
    "VideoFacts": "inset.media.sampling",
    "VideoFrames": "inset.media.decoded",
    "VideoIO": "inset.media.video",
    "VideoSampler": "inset.media.sampling",
    "build_module": "inset.modeling.loading",
    "canonical_json": "inset.identity",
    "center_crop": "inset.processing.resize",
    "check_resample": "inset.processing.resize",
    "item_bytes": "inset.cache.values",
    "load_checkpoint": "inset.checkpoint",
    "load_weights": "inset.modeling.loading",
    "open_below": "inset.media.local",
    "own_attention": "inset.modeling.attention",
    "pad_to_square": "inset.processing.resize",
    "read_attention_layers": "inset.modeling.attention",
    "read_config": "inset.modeling.transformers_adapter",
    "read_file": "inset.media.local",
    "read_only": "inset.cache.values",
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
