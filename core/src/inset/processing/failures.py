"""What goes wrong while a request waits for several items."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING

from inset.errors import InsetError

if TYPE_CHECKING:
    from inset.processing.item_state import ItemState

__all__ = ["Failures"]


class Failures:
    """What went wrong while a request waited, told when all of the waiting is done; true where there is anything."""

    def __init__(self) -> None:
        self._errors: list[InsetError] = []

    def __bool__(self) -> bool:
        return bool(self._errors)

    @contextmanager
    def kept(self) -> Iterator[None]:
        """Keeps an error of ours instead of raising it."""
        try:
            yield
        except InsetError as error:
            self._errors.append(error)

    def raise_first(self, items: Sequence[ItemState]) -> None:
        """Raises the failure of the first item in request order; one that lies in no item comes before all.

        Args:
            items: All items of the request, in its order.

        Raises:
            InsetError: One was kept.
        """
        if self._errors:
            places: dict[tuple[str | None, int | None], int] = {
                (item.modality, item.original_index): place for place, item in enumerate(items)
            }
            raise min(self._errors, key=lambda error: places.get((error.modality, error.item_index), -1))
