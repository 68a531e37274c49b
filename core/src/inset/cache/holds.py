"""What an engine half keeps for its requests until they end."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from inset.inputs import ItemTensors

__all__ = ["RequestHolds"]


class RequestHolds:
    """The tensors of each request's items by hash."""

    def __init__(self) -> None:
        self._tensors: dict[str, dict[bytes, ItemTensors]] = {}

    def __len__(self) -> int:
        """How many items requests hold, an item counted once for each request."""
        return sum(len(held) for held in self._tensors.values())

    def put(self, request_id: str, mm_hash: bytes, tensors: ItemTensors) -> None:
        """Keeps an item for a request."""
        self._tensors.setdefault(request_id, {})[mm_hash] = tensors

    def get(self, request_id: str, mm_hash: bytes) -> ItemTensors | None:
        """Returns what is kept, or None."""
        return self._tensors.get(request_id, {}).get(mm_hash)

    def release(self, request_id: str) -> None:
        """Ends what one request holds; idempotent."""
        self._tensors.pop(request_id, None)

    def clear(self) -> None:
        """Ends what all requests hold."""
        self._tensors.clear()
