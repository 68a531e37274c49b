"""Names to import strings: what a plugin registers, who registered it, and how it is loaded on first use."""

from inset.registry.kinds import (
    CheckpointRegistration,
    CheckpointRegistry,
    ConnectorRegistration,
    MediaConnectorRegistry,
    ModelRegistration,
    ModelRegistry,
    ProcessorCacheRegistration,
    ProcessorCacheRegistry,
    ProcessorRegistration,
    ProcessorRegistry,
    is_scheme,
)
from inset.registry.table import Owner, Registry, describe_clash, find_extra, load_object, normalize_name

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
    "describe_clash",
    "find_extra",
    "is_scheme",
    "load_object",
    "normalize_name",
]
