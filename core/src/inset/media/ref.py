"""The unit that travels from fetch to processing: encoded bytes, their identity, and a decode that waits until it is asked for."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Generic, TypeVar, cast

from inset.identity import IDENTITY_SCHEMA, JSON, DecodeSpec, framed_sha256
from inset.media.header import MediaHeader

__all__ = ["MediaRef"]

T = TypeVar("T")
U = TypeVar("U")


class _Decode(Generic[T]):
    """One decode whose result is kept at most once; forks of a reference share it.

    Args:
        load: Decodes; is told whether the result is kept, so that a mapped reference keeps nothing of its parent's either.
        result: What is decoded already, where there is nothing to load.
    """

    __slots__ = ("_load", "_result", "is_done", "lock")

    def __init__(self, load: Callable[[bool], T] | None, result: T | None = None) -> None:
        self._load = load
        self._result = result
        self.is_done = load is None
        self.lock = threading.RLock()

    def __call__(self, keep: bool) -> T:
        if not self.is_done:
            with self.lock:
                if self._load is not None:
                    result = self._load(keep)
                    if not keep:
                        return result
                    self._result = result
                    self._load = None  # it pins the encoded bytes
                    self.is_done = True
        return cast("T", self._result)


class MediaRef(Generic[T]):
    """Encoded media of one item, decoded on demand and at most once.

    A reference forwards nothing to what it decodes to: logging, copying, comparing or handing it to numpy never decodes. Only `decode` and
    pickling do. It may be shared between threads. Whoever holds a reference owns it alone: `release` reaches no fork, parent or child.

    Source: the media reference of lazy media decode.
    """

    __slots__ = ("__weakref__", "_data", "_header", "_key", "_operation", "_spec")

    def __init__(self, key: bytes, spec: DecodeSpec, *, data: bytes, header: MediaHeader, load: Callable[[], T]) -> None:
        """Makes a reference.

        Args:
            key: Identity of the decoded media, 32 bytes.
            spec: The decode settings, which are already part of the key.
            data: The encoded bytes.
            header: What the probe saw.
            load: Decodes; dropped once its result is kept.
        """
        self._key = key
        self._spec = spec
        self._data = data
        self._header = header
        self._operation: _Decode[T] | None = _Decode(lambda keep: load())

    @property
    def key(self) -> bytes:
        """Identity of the decoded media, 32 bytes: from the encoded bytes and the decode spec, never from decoded content."""
        return self._key

    @property
    def spec(self) -> DecodeSpec:
        """The decode settings that are part of the key."""
        return self._spec

    @property
    def data(self) -> bytes:
        """The encoded bytes; empty once released, and in a reference that was unpickled."""
        return self._data

    @property
    def header(self) -> MediaHeader:
        """What the probe saw; forks and pickles keep it, and `map` says what it changes."""
        return self._header

    @property
    def is_decoded(self) -> bool:
        """Whether `decode` returns at once."""
        operation = self._operation
        return operation is not None and operation.is_done

    def decode(self, *, keep: bool = True) -> T:
        """Returns the decoded media; the first call decodes, others wait for it and share its result.

        Errors of the decoder pass through unchanged, and the next call tries again.

        Args:
            keep: Whether the result stays with the reference and its forks for later calls. Otherwise it is the caller's alone, unless it
                was kept before, and goes when the caller lets go of it; a later call decodes again.

        Raises:
            RuntimeError: The reference was released before it was decoded.
            MediaDecodeError: The bytes are damaged, or are not what their header says.
        """
        return self._borrow()(keep)

    def map(self, transform: Callable[[T], U], *, header: MediaHeader | None = None, **settings: JSON) -> MediaRef[U]:
        """Returns a reference that decodes to ``transform(self.decode())`` and shares the encoded bytes.

        Args:
            transform: Called in the thread that decodes, once where the result is kept.
            header: What the header becomes, where the transform changes it.
            settings: What identifies the transform and everything that affects its output. They extend the spec, and the key is derived
                from this reference's key. Without settings spec and key stay, so the transform must not change what the item is.

        Raises:
            RuntimeError: The reference was released before it was decoded.
        """
        operation = self._borrow()
        spec, key = self._spec, self._key
        if settings:
            spec = spec.extend(settings)
            key = framed_sha256(IDENTITY_SCHEMA, b"mapped", key, spec.canonical_bytes())
        return _make(key, spec, self._data, header or self._header, _Decode(lambda keep: transform(operation(keep))))

    def fork(self) -> MediaRef[T]:
        """Returns a reference to the same media and the same decode that can be released on its own.

        Raises:
            RuntimeError: The reference was released before it was decoded.
        """
        return _make(self._key, self._spec, self._data, self._header, self._borrow())

    def release(self) -> None:
        """Lets go of the encoded bytes and of the decode, once a decode that runs has finished; what is decoded stays readable.

        Forks, parents and mapped references keep what they hold.
        """
        operation = self._operation
        if operation is not None:
            with operation.lock:
                if not operation.is_done:
                    self._operation = None
        self._data = b""

    def _borrow(self) -> _Decode[T]:
        if self._operation is None:
            raise RuntimeError(f"{self!r} was released before it was decoded.")
        return self._operation

    def __repr__(self) -> str:
        state = "decoded" if self.is_decoded else "released" if self._operation is None else "encoded"
        return f"<MediaRef {self._header.modality} {self._key[:6].hex()} {len(self._data)} bytes, {state}>"

    def __copy__(self) -> MediaRef[T]:
        return self.fork()

    def __deepcopy__(self, memo: object) -> MediaRef[T]:
        return self.fork()

    def __reduce__(self) -> tuple[object, ...]:
        return (_restore, (self.decode(), self._key, self._spec, self._header))


def _restore(media: T, key: bytes, spec: DecodeSpec, header: MediaHeader) -> MediaRef[T]:
    return _make(key, spec, b"", header, _Decode(None, media))


def _make(key: bytes, spec: DecodeSpec, data: bytes, header: MediaHeader, operation: _Decode[T]) -> MediaRef[T]:
    ref: MediaRef[T] = object.__new__(MediaRef)
    ref._key, ref._spec, ref._data, ref._header, ref._operation = key, spec, data, header, operation  # noqa: SLF001 - its own module
    return ref
