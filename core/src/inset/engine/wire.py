"""Messages between processes as frames: one msgpack head, and the memory of every array behind it. No pickle.

A value of a known class travels as its name and its fields, an array as its type, shape and the number of its frame. Whatever else is
not plain is refused, so that nothing but values can cross a socket. Sequences arrive as tuples.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any, Final

import msgspec
import numpy as np

from inset.cache.values import CommittedItem
from inset.engine.messages import (
    AbortRequests,
    AddRequests,
    CacheMessage,
    CacheMissed,
    DiscardCommit,
    EngineStats,
    Heartbeat,
    ItemsReset,
    Reset,
    ResetDone,
    ResetItems,
    StepDone,
)
from inset.errors import InvariantError
from inset.inputs import EngineRequest, ItemPlan, MultiModalFeature, PlaceholderRange
from inset.outputs import EngineOutput
from inset.sampling_params import SamplingParams
from inset.step import RequestFailure, TokenLogprobs

__all__ = ["decode_frames", "encode_frames", "known_classes"]

Frame = bytes | bytearray | memoryview

_CLASSES: Final[Mapping[str, type[Any]]] = {
    cls.__name__: cls
    for cls in (
        AbortRequests,
        AddRequests,
        CacheMessage,
        CacheMissed,
        CommittedItem,
        DiscardCommit,
        EngineOutput,
        EngineRequest,
        EngineStats,
        Heartbeat,
        ItemPlan,
        ItemsReset,
        MultiModalFeature,
        PlaceholderRange,
        RequestFailure,
        Reset,
        ResetDone,
        ResetItems,
        SamplingParams,
        StepDone,
        TokenLogprobs,
    )
}

_VALUE, _ARRAY, _TUPLE = 1, 2, 3
_PLAIN = (str, bytes, int, float, bool, type(None))


def known_classes() -> Mapping[str, type[Any]]:
    """Returns the classes that may travel, by name."""
    return _CLASSES


def encode_frames(value: object) -> list[Frame]:
    """Returns the head, then one frame per array; arrays are not copied where they are contiguous.

    An array or a sequence that stands in several places, as in the answers to one prompt, is looked through once; an array travels once.

    Raises:
        InvariantError: The value holds something that may not travel.
    """
    packing = _Packing()
    head = msgspec.msgpack.encode(packing.pack(value))
    return [head, *packing.arrays]


def decode_frames(frames: Sequence[Frame]) -> Any:
    """Returns the value again; its arrays are read-only views of the frames.

    Raises:
        InvariantError: The frames were not made by `encode_frames`, or by another version of it.
    """
    try:
        return _unpack(msgspec.msgpack.decode(frames[0]), frames)
    except (msgspec.MsgspecError, KeyError, IndexError, TypeError, ValueError) as error:
        raise InvariantError(f"A message between processes cannot be read: {type(error).__name__}: {error}") from error


class _Packing:
    """The packing of one message.

    Attributes:
        arrays: The memory of its arrays; the head is frame 0.
    """

    def __init__(self) -> None:
        self.arrays: list[Frame] = []
        self._known: dict[int, object] = {}

    def pack(self, value: object) -> object:
        """Returns a value as plain lists and mappings."""
        if isinstance(value, _PLAIN):
            return value
        if isinstance(value, Mapping):
            return {key: self.pack(item) for key, item in value.items()}
        if dataclasses.is_dataclass(value) and type(value).__name__ in _CLASSES:
            return [_VALUE, type(value).__name__, [self.pack(getattr(value, field.name)) for field in dataclasses.fields(value)]]
        if not isinstance(value, np.ndarray | Sequence):
            raise InvariantError(f"A {type(value).__name__} cannot travel between processes.")
        if id(value) not in self._known:  # whoever has the message keeps what is in it
            self._known[id(value)] = self._pack_array(value) if isinstance(value, np.ndarray) else self._pack_sequence(value)
        return self._known[id(value)]

    def _pack_array(self, value: np.ndarray[Any, Any]) -> object:
        array = np.ascontiguousarray(value)
        self.arrays.append(array.reshape(-1).view(np.uint8).data if array.size else b"")
        return [_ARRAY, array.dtype.str, list(value.shape), len(self.arrays)]

    def _pack_sequence(self, value: Sequence[object]) -> object:
        is_plain = all(isinstance(item, _PLAIN) for item in value)
        return [_TUPLE, list(value) if is_plain else [self.pack(item) for item in value], is_plain]


def _unpack(value: Any, frames: Sequence[Frame]) -> Any:
    if isinstance(value, dict):
        return {key: _unpack(item, frames) for key, item in value.items()}
    if not isinstance(value, list):
        return value
    kind, *rest = value
    if kind == _TUPLE:
        items, is_plain = rest
        return tuple(items) if is_plain else tuple(_unpack(item, frames) for item in items)
    if kind == _ARRAY:
        dtype, shape, index = rest
        array = np.frombuffer(frames[index], dtype=np.dtype(dtype)).reshape(shape)
        array.flags.writeable = False
        return array
    name, fields = rest
    cls = _CLASSES[name]
    names = [field.name for field in dataclasses.fields(cls)]
    return cls(**dict(zip(names, (_unpack(item, frames) for item in fields), strict=True)))
