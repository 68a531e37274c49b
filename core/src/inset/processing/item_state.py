"""One item of one request on its way through processing."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple, TypeVar

if TYPE_CHECKING:
    from inset.cache.values import ProcessedItem
    from inset.errors import InsetError
    from inset.identity import JSON
    from inset.inputs import ItemPlan
    from inset.processing.items import ModalityDataItems

__all__ = ["ItemState", "ItemUuid"]

E = TypeVar("E", bound="InsetError")


class ItemUuid(NamedTuple):
    """The client's own name of an item.

    Attributes:
        name: As `UuidAliases` keeps it.
        content: Digest of the bytes that came with it, or None where only the uuid came.
        options: Canonical options of the request for this item.
    """

    name: bytes
    content: bytes | None
    options: bytes


@dataclass(slots=True, kw_only=True)
class ItemState:
    """One item; written by the thread that runs the request's phases alone.

    Attributes:
        modality: ``image``, ``video`` or ``audio``.
        items: The parsed items of this modality.
        index: Position in `items`.
        options: The processor options that act on it.
        mm_hash: Identity, 32 bytes; empty until a uuid that came alone has been resolved.
        uuid: The client's own name for it, or None.
        plan: What it becomes, once known.
        is_cached: The processor cache has it, and holds it for this request.
        processed: Its tensors, where they were made here or by a request that asked for the same item.
    """

    modality: str
    items: ModalityDataItems
    index: int
    options: Mapping[str, JSON]
    mm_hash: bytes = b""
    uuid: ItemUuid | None = None
    plan: ItemPlan | None = None
    is_cached: bool = False
    processed: ProcessedItem | None = None

    @property
    def original_index(self) -> int:
        """Position among the request's items of this modality."""
        return self.items.get_original_index(self.index)

    def locate(self, error: E, stage: str) -> E:
        """Notes in an error that this item is to blame."""
        return error.locate(stage=stage, modality=self.modality, item_index=self.original_index)
