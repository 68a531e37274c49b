"""What media is called: canonical JSON, framed digests, decode specs, media keys and `mm_hash`.

Every name is derived from content and configuration alone, so that it is the same in every process, for every hash seed, and whatever
optional packages are installed.
"""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final, TypeAlias, cast

from inset.errors import InvalidRequestError

__all__ = [
    "IDENTITY_SCHEMA",
    "JSON",
    "DecodeSpec",
    "canonical_json",
    "derive_media_key",
    "derive_mm_hash",
    "framed_sha256",
]

JSON: TypeAlias = "bool | int | float | str | Sequence[JSON] | Mapping[str, JSON] | None"

IDENTITY_SCHEMA: Final = b"inset-identity-1"
"""Changes whenever the meaning of any key below changes, so that no older entry can be read as a new one."""

_MAX_DEPTH: Final = 64
_MAX_INTEGER_BITS: Final = 1024


def canonical_json(value: JSON) -> bytes:
    """Returns the one UTF-8 JSON text of a value: keys sorted, no white space, floats in their shortest form.

    ``1`` and ``1.0`` and ``True`` stay different: a decoder may treat them differently, and a false difference costs only a miss.

    Raises:
        InvalidRequestError: A value is not JSON, a key is not text, a number is not finite or has thousands of digits, or the nesting is
            deep.
    """
    _check_json(value, "$", _MAX_DEPTH)
    return json.dumps(_plain(value), sort_keys=True, separators=(",", ":"), ensure_ascii=False, allow_nan=False).encode(
        "utf-8", "surrogatepass"
    )


def _check_json(value: object, where: str, depth: int) -> None:
    if depth == 0:
        raise InvalidRequestError(f"$ is nested more than {_MAX_DEPTH} levels deep: options must be flatter.")
    if value is None or isinstance(value, bool | str):
        return
    if isinstance(value, int):
        if value.bit_length() > _MAX_INTEGER_BITS:
            raise InvalidRequestError(f"{where} is a number of more than {_MAX_INTEGER_BITS} bits.")
    elif isinstance(value, float):
        if not math.isfinite(value):
            raise InvalidRequestError(f"{where} is {value}: options must be finite numbers.")
    elif isinstance(value, Mapping):
        for key, item in value.items():
            if not isinstance(key, str):
                raise InvalidRequestError(f"{where} has the key {key!r}: option names must be text.")
            _check_json(item, f"{where}.{key}", depth - 1)
    elif isinstance(value, list | tuple):
        for index, item in enumerate(value):
            _check_json(item, f"{where}[{index}]", depth - 1)
    else:
        raise InvalidRequestError(f"{where} is a {type(value).__name__}: options must be JSON values.")


def _plain(value: JSON) -> JSON:
    """Copies mappings to dicts and sequences to lists, so that json can write them and nobody else can change them."""
    if isinstance(value, Mapping):
        return {key: _plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(item) for item in value]
    return value


def framed_sha256(*parts: bytes | bytearray | memoryview) -> bytes:
    """Returns the sha256, 32 bytes, over all parts, each preceded by its length as 8 bytes.

    The length keeps a boundary between two parts from being shifted by their content.
    """
    digest = hashlib.sha256()
    for part in parts:
        view = memoryview(part)
        digest.update(view.nbytes.to_bytes(8, "big"))
        digest.update(view)
    return digest.digest()


@dataclass(frozen=True, slots=True)
class DecodeSpec:
    """Every setting that takes part in turning encoded bytes into decoded media; folded into the media key.

    A snapshot: later changes to the mapping that it was made from do not reach it, and `settings` returns a fresh copy.

    Source: the decode specification of lazy media decode.
    """

    _canonical: bytes

    def __init__(self, settings: Mapping[str, JSON]) -> None:
        object.__setattr__(self, "_canonical", canonical_json(settings))

    @property
    def settings(self) -> dict[str, JSON]:
        """A fresh copy of the settings."""
        return cast("dict[str, JSON]", json.loads(self._canonical.decode("utf-8", "surrogatepass")))

    def canonical_bytes(self) -> bytes:
        """The settings as canonical JSON."""
        return self._canonical

    def extend(self, settings: Mapping[str, JSON]) -> DecodeSpec:
        """Returns a spec with further settings; one of the same name is replaced."""
        return DecodeSpec({**self.settings, **settings})

    def __reduce__(self) -> tuple[object, ...]:
        return (DecodeSpec, (self.settings,))


def derive_media_key(data: bytes | bytearray | memoryview, spec: DecodeSpec) -> bytes:
    """Returns the identity of encoded media under a decode spec, 32 bytes.

    Linear in the payload; never decodes. Call it off the event loop.
    """
    return framed_sha256(IDENTITY_SCHEMA, b"media", data, spec.canonical_bytes())


def derive_mm_hash(
    *,
    modality: str,
    media_key: bytes,
    processor_fingerprint: bytes,
    mm_processor_kwargs: Mapping[str, JSON],
    cache_salt: str | None,
) -> bytes:
    """Returns the `mm_hash` of one item, 32 bytes: its name in the processor, encoder and prefix caches and in any store.

    Args:
        modality: ``image``, ``video`` or ``audio``.
        media_key: Identity of the decoded media, always derived from content.
        processor_fingerprint: Digest of the plugin's distribution and version, the processor's class and config, and the checkpoint's
            preprocessor config.
        mm_processor_kwargs: The options of this modality alone.
        cache_salt: Separates tenants; None is a tenant of its own.
    """
    salt = b"" if cache_salt is None else b"salt:" + cache_salt.encode("utf-8", "surrogatepass")
    options = canonical_json(mm_processor_kwargs)
    return framed_sha256(IDENTITY_SCHEMA, b"item", modality.encode(), media_key, processor_fingerprint, options, salt)
