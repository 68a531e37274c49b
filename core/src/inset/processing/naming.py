"""Gives every item of a request its `mm_hash`: from content, or from a uuid whose content was seen before."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from inset.errors import ClientError, InvalidRequestError, MediaNotCachedError, UuidConflictError
from inset.identity import JSON, canonical_json, derive_mm_hash, framed_sha256
from inset.media.ref import MediaRef
from inset.processing.hashing import MultiModalHasher
from inset.processing.item_state import ItemState, ItemUuid
from inset.processing.items import MediaItems
from inset.processing.uuids import UuidAlias, UuidAliases

if TYPE_CHECKING:
    from inset.processing.apply_state import MultiModalApplyState
    from inset.processing.inputs import ProcessorInputs
    from inset.processing.items import ModalityDataItems

__all__ = ["bind_uuids", "name_items", "resolve_uuids"]


def name_items(
    inputs: ProcessorInputs,
    mm_items: Mapping[str, ModalityDataItems],
    *,
    options: Mapping[str, Sequence[Mapping[str, JSON]]],
    fingerprint: bytes,
) -> list[ItemState]:
    """Returns the items of a request in the order of modalities and positions, named by their content where there is any.

    Args:
        inputs: The request.
        mm_items: Its parsed items.
        options: Modality -> processor options per item.
        fingerprint: Identity of the processing.

    Raises:
        InvalidRequestError: There are other uuids than items, an item has neither media nor a uuid, or it cannot be named.
    """
    states = []
    for modality, items in mm_items.items():
        uuids = _uuids(inputs, modality, len(items))
        for index in range(len(items)):
            state = ItemState(modality=modality, items=items, index=index, options=options[modality][index])
            try:
                _name(state, inputs, uuids[index], fingerprint)
            except ClientError as error:
                raise state.locate(error, "parse") from error.__cause__
            states.append(state)
    return states


def _uuids(inputs: ProcessorInputs, modality: str, num_items: int) -> Sequence[str | None]:
    uuids = inputs.mm_uuids.get(modality)
    if uuids is None:
        return [None] * num_items
    if len(uuids) != num_items:
        raise InvalidRequestError(f"There are {num_items} {modality}(s) and {len(uuids)} uuid(s).", stage="parse", modality=modality)
    wrong = next((index for index, uuid in enumerate(uuids) if not isinstance(uuid, str | None)), None)
    if wrong is not None:
        raise InvalidRequestError("A uuid must be text.", stage="parse", modality=modality, item_index=wrong)
    return uuids


def _name(state: ItemState, inputs: ProcessorInputs, uuid: str | None, fingerprint: bytes) -> None:
    raw = state.items.get_raw(state.index)
    is_given = not isinstance(state.items, MediaItems) or state.items.is_given(state.index)
    if not is_given and uuid is None:
        raise InvalidRequestError("This item has neither media nor a uuid.")
    decode_options: dict[str, JSON] = {}
    if not isinstance(raw, MediaRef):  # the key of a reference has them already
        decode_options = dict(inputs.media_io_kwargs.get(state.modality, {}))
    content = b""
    if is_given:
        content = MultiModalHasher.hash_item(raw)
        state.mm_hash = derive_mm_hash(
            modality=state.modality,
            media_key=content,
            processor_fingerprint=fingerprint,
            mm_processor_kwargs={"processor": state.options, "decode": decode_options} if decode_options else state.options,
            cache_salt=inputs.cache_salt,
        )
    if uuid is not None:
        name = UuidAliases.make_name(uuid, modality=state.modality, api_key=inputs.api_key, cache_salt=inputs.cache_salt)
        if isinstance(raw, MediaRef) and raw.data:
            content = framed_sha256(raw.data)
        options = canonical_json({"processor": state.options, "decode": inputs.media_io_kwargs.get(state.modality, {})})
        state.uuid = ItemUuid(name, content if is_given else None, options)


def resolve_uuids(state: MultiModalApplyState, aliases: UuidAliases) -> None:
    """Gives items that came as a uuid alone their name, and refuses a uuid that is bound to other bytes.

    Raises:
        MediaNotCachedError: A uuid without bytes is not bound here, or its item is no longer cached under these options.
        UuidConflictError: A uuid with bytes is still bound to other bytes.
    """
    for item in state.items:
        if item.uuid is None:
            continue
        alias = aliases.get(item.uuid.name)
        if item.uuid.content is None:
            item.mm_hash = b"" if alias is None or alias.options != item.uuid.options else alias.mm_hash
            if not item.mm_hash or not state.look_up(item):
                raise item.locate(
                    MediaNotCachedError("Its uuid came without media, and no media is cached under that uuid. Send the media again."),
                    "parse",
                )
        elif alias is not None and alias.content != item.uuid.content:
            if state.is_held(alias.mm_hash):
                raise item.locate(UuidConflictError("Its uuid is still bound to other bytes. Use another uuid for other media."), "parse")
            aliases.drop(item.uuid.name, alias)


def bind_uuids(items: Sequence[ItemState], aliases: UuidAliases) -> None:
    """Binds the uuids of items whose bytes were seen; called once they are cached."""
    for item in items:
        if item.uuid is not None and item.uuid.content is not None:
            aliases.bind(item.uuid.name, UuidAlias(item.uuid.content, item.uuid.options, item.mm_hash))
