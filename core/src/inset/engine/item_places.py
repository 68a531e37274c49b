"""Where a request's items stood in what the client sent."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, NamedTuple

from inset.errors import InsetError

if TYPE_CHECKING:
    from inset.engine.content_parts import MediaPart

__all__ = ["ItemPlaces"]


class ItemPlaces(NamedTuple):
    """The places of all items; kept as long as a request runs, when its parts, which hold bytes, are gone.

    Attributes:
        by_modality: Modality -> one place per item, such as ``messages[2].content[1]``.
    """

    by_modality: Mapping[str, Sequence[str]]

    @classmethod
    def of(cls, parts: Sequence[MediaPart]) -> ItemPlaces:
        """Returns the places of parts, in their order."""
        places: dict[str, list[str]] = {}
        for part in parts:
            places.setdefault(part.modality, []).append(part.parameter)
        return cls(places)

    @contextmanager
    def noted(self) -> Iterator[None]:
        """Notes in an error that names an item where the client put it."""
        try:
            yield
        except InsetError as error:
            if error.modality is not None and error.item_index is not None:
                places = self.by_modality.get(error.modality, ())
                if error.item_index < len(places):
                    error.locate(parameter=places[error.item_index])
            raise
