"""The client's own names of items: bounded aliases of `mm_hash`, which is always made from content."""

from __future__ import annotations

import threading
from collections import OrderedDict
from typing import Final, NamedTuple

from inset.identity import framed_sha256

__all__ = ["UuidAlias", "UuidAliases"]

_MAX_ALIASES: Final = 65_536


class UuidAlias(NamedTuple):
    """What a uuid stands for.

    Attributes:
        content: Digest of the bytes that came with it.
        options: Canonical options under which they were processed.
        mm_hash: Identity of the item.
    """

    content: bytes
    options: bytes
    mm_hash: bytes


class UuidAliases:
    """(API key, salt, modality, uuid) -> what it stands for; thread-safe, and each front end keeps its own.

    An alias says nothing about whether the item is still cached: who reads it looks that up, and drops the alias where it is not.
    Names are kept as digests.
    """

    def __init__(self, max_aliases: int = _MAX_ALIASES) -> None:
        self._max_aliases = max_aliases
        self._aliases: OrderedDict[bytes, UuidAlias] = OrderedDict()
        self._lock = threading.Lock()

    @staticmethod
    def make_name(uuid: str, *, modality: str, api_key: str | None, cache_salt: str | None) -> bytes:
        """Returns the name under which an alias is kept, 32 bytes."""
        scope = [b"" if part is None else b"=" + part.encode("utf-8", "surrogatepass") for part in (api_key, cache_salt, uuid)]
        return framed_sha256(b"uuid", modality.encode(), *scope)

    def get(self, name: bytes) -> UuidAlias | None:
        """Returns what a name stands for, or None."""
        with self._lock:
            alias = self._aliases.get(name)
            if alias is not None:
                self._aliases.move_to_end(name)
            return alias

    def bind(self, name: bytes, alias: UuidAlias) -> None:
        """Binds a name; the one that was used least recently makes room."""
        with self._lock:
            self._aliases[name] = alias
            self._aliases.move_to_end(name)
            while len(self._aliases) > self._max_aliases:
                self._aliases.popitem(last=False)

    def drop(self, name: bytes, alias: UuidAlias) -> None:
        """Forgets a name, unless it has been bound to something else since."""
        with self._lock:
            if self._aliases.get(name) == alias:
                del self._aliases[name]

    def __len__(self) -> int:
        return len(self._aliases)
