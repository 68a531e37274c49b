"""Finished embeddings that a trusted client passes instead of media."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from inset.errors import InvalidRequestError
from inset.processing.given_media import to_array
from inset.processing.items import ModalityDataItems

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

__all__ = ["DictEmbeddingItems", "EmbeddingItems", "check_embeds"]


class EmbeddingItems(ModalityDataItems):
    """Embeddings of one modality: per item ``(num_embeds, embed_size)`` float32."""

    def __init__(self, embeds: Sequence[NDArray[np.float32]], *, modality: str) -> None:
        super().__init__(embeds)
        self.modality = modality

    def get(self, index: int) -> NDArray[np.float32]:
        """Returns the embeddings of one item."""
        embeds: NDArray[np.float32] = self._items[index]  # type: ignore[assignment]
        return embeds

    def get_fields(self, index: int) -> Mapping[str, np.ndarray[Any, Any]]:
        """Returns the fields of one item besides its embeddings, such as its grid; none here."""
        return {}


class DictEmbeddingItems(ModalityDataItems):
    """Embeddings that come with further fields of the same items, such as ``image_grid_thw``; they are selected together."""

    def __init__(self, items: Sequence[Mapping[str, np.ndarray[Any, Any]]], *, modality: str) -> None:
        super().__init__(items)
        self.modality = modality
        self._name = f"{modality}_embeds"

    def get(self, index: int) -> Mapping[str, np.ndarray[Any, Any]]:
        """Returns all fields of one item."""
        item: Mapping[str, np.ndarray[Any, Any]] = self._items[index]  # type: ignore[assignment]
        return item

    def get_fields(self, index: int) -> Mapping[str, np.ndarray[Any, Any]]:
        """Returns the fields of one item besides its embeddings, such as its grid."""
        return {name: value for name, value in self.get(index).items() if name != self._name}

    def get_embeds(self, index: int) -> NDArray[np.float32]:
        """Returns the embeddings of one item."""
        return self.get(index)[self._name]


def check_embeds(value: object, *, embed_size: int, what: str) -> NDArray[np.float32]:
    """Returns embeddings as ``(num_embeds, embed_size)`` float32 in memory of their own order.

    Raises:
        InvalidRequestError: They are no floating-point array of that shape, are empty, or hold values that are not finite.
    """
    import numpy as np

    array = to_array(value)
    if array is None or not np.issubdtype(array.dtype, np.floating):
        raise InvalidRequestError(f"{what} must be a floating-point array or tensor.", stage="parse")
    if array.ndim != 2 or array.shape[1] != embed_size or not len(array):
        raise InvalidRequestError(f"{what} must be (num_embeds, {embed_size}); their shape is {array.shape}.", stage="parse")
    with np.errstate(over="ignore"):  # what does not fit is not finite
        embeds = np.ascontiguousarray(array, np.float32)
    if not np.isfinite(embeds).all():
        raise InvalidRequestError(f"{what} hold values that are not finite.", stage="parse")
    return embeds
