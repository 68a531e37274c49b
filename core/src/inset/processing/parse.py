"""Brings the media of a request into one form, without decoding what was fetched."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from inset.errors import InvalidRequestError
from inset.identity import DecodeSpec
from inset.inputs import MODALITIES
from inset.media.decoded import AudioSamples, VideoFrames
from inset.media.ref import MediaRef
from inset.processing.embedding_items import DictEmbeddingItems, EmbeddingItems, check_embeds
from inset.processing.given_items import EMBEDS, split_items
from inset.processing.given_media import audio_samples, image_header, sound_header, to_array, video_frames
from inset.processing.hashing import MultiModalHasher
from inset.processing.items import AudioProcessorItems, ImageProcessorItems, MediaItems, ModalityDataItems, VideoProcessorItems

if TYPE_CHECKING:
    from inset.media.io import MediaIO

__all__ = ["ParseOptions", "parse_mm_data"]

_CHANNELS: Final = (3, 4)
"""Of pictures; a single one cannot be told from a batch of one."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ParseOptions:
    """What parsing needs to know about the model.

    Attributes:
        get_media_io: Modality -> decoder, for encoded bytes that are handed over directly.
        embed_size: Width of one embedding.
        video_needs_metadata: `VideoProcessorItems.get` shows the metadata beside the frames.
        audio_sampling_rate: Rate that sound is resampled to, in samples per second, or None for its own.
        mixes_audio_down: Channels become one.
    """

    get_media_io: Callable[[str], MediaIO[Any]]
    embed_size: int
    video_needs_metadata: bool = False
    audio_sampling_rate: int | None = None
    mixes_audio_down: bool = False


def parse_mm_data(mm_data: Mapping[str, object], options: ParseOptions) -> dict[str, ModalityDataItems]:
    """Returns modality -> items.

    References are forked: the items own the forks, and the caller's references stay usable.

    Args:
        mm_data: Modality -> one item or a list of items: a `MediaRef`, encoded bytes, decoded media, embeddings, or None where the
            client gave only a uuid. ``image_embeds`` and its like name embeddings too, as a list, as one array or as a mapping of fields.
        options: What the model needs.

    Raises:
        InvalidRequestError: A modality is unknown, or an item is nothing that is accepted; its index is named.
    """
    parsed: dict[str, ModalityDataItems] = {}
    for name, given in mm_data.items():
        modality = name.removesuffix(EMBEDS)
        if modality not in MODALITIES:
            raise InvalidRequestError(f"Unknown modality {name!r} in multi_modal_data; known are {', '.join(MODALITIES)}.", stage="parse")
        if given is None or (isinstance(given, list | tuple) and not given):
            continue
        if modality in parsed:
            raise InvalidRequestError(f"Give {modality}s either as media or as embeddings, not both.", stage="parse", modality=modality)
        if name != modality or _is_embeddings(given, options):
            parsed[modality] = _parse_embeddings(modality, given, options)
        else:
            parsed[modality] = _parse_media(modality, given, options)
    return parsed


def _parse_media(modality: str, given: object, options: ParseOptions) -> MediaItems[Any]:
    items = []
    for index, item in enumerate(split_items(modality, given)):
        try:
            items.append(_prepare(modality, item, options))
        except InvalidRequestError as error:
            raise error.locate(stage="parse", modality=modality, item_index=index) from error.__cause__
    if modality == "image":
        return ImageProcessorItems(items)
    if modality == "video":
        return VideoProcessorItems(items, needs_metadata=options.video_needs_metadata)
    return AudioProcessorItems(items)


def _prepare(modality: str, item: object, options: ParseOptions) -> object:
    """One item as it is stored; checked as far as that needs no decoding."""
    if item is None:
        return None
    if _is_embeddings(item, options):
        raise InvalidRequestError(f"Give {modality}s either as media or as embeddings, not both.")
    if isinstance(item, bytes | bytearray | memoryview):
        ref = options.get_media_io(modality).load_bytes_ref(bytes(item))
        return _prepare_sound(ref, options) if modality == "audio" else ref
    if isinstance(item, MediaRef):
        if item.header.modality != modality:
            raise InvalidRequestError(f"This item is {item.header.modality}, and was given as {modality}.")
        return _prepare_sound(item.fork(), options) if modality == "audio" else item.fork()
    if modality == "image":
        if isinstance(item, VideoFrames | AudioSamples):
            raise InvalidRequestError(f"A {type(item).__name__} is not an image.")
        image_header(item)
        return item
    if modality == "video":
        return video_frames(item)
    sound = audio_samples(item)
    key = MultiModalHasher.hash_item(sound)
    return _prepare_sound(MediaRef(key, DecodeSpec({}), data=b"", header=sound_header(sound), load=lambda: sound), options)


def _prepare_sound(ref: MediaRef[AudioSamples], options: ParseOptions) -> MediaRef[AudioSamples]:
    """Has sound brought to the model's rate and channels when it is decoded; both become part of its key."""
    if options.audio_sampling_rate is None and not options.mixes_audio_down:
        return ref
    from inset.media.audio import mix_down, resample

    if options.audio_sampling_rate is not None:
        ref = resample(ref, options.audio_sampling_rate)
    return mix_down(ref) if options.mixes_audio_down else ref


def _is_embeddings(given: object, options: ParseOptions) -> bool:
    """Whether this is an array of floats, a mapping of fields, or a list of such: media come as uint8, or as samples with their rate.

    Floats whose last dimension is as wide as an embedding are embeddings; others that have the three dimensions and the channels of a
    picture are one, which whoever reads pictures refuses as not uint8.
    """
    import numpy as np

    if isinstance(given, list):
        return bool(given) and all(_is_embeddings(item, options) for item in given)
    if isinstance(given, Mapping):
        return True
    array = to_array(given)
    if array is None or array.ndim not in (2, 3) or not np.issubdtype(array.dtype, np.floating):
        return False
    is_picture = array.ndim == 3 and (array.shape[2] in _CHANNELS or array.shape[0] in _CHANNELS)
    return array.shape[-1] == options.embed_size or not is_picture


def _parse_embeddings(modality: str, given: object, options: ParseOptions) -> ModalityDataItems:
    parts = given if isinstance(given, list) else [given]
    if not any(isinstance(part, Mapping) for part in parts):
        return EmbeddingItems(_parse_embeds(modality, given, options), modality=modality)
    items: list[Mapping[str, Any]] = []
    for part in parts:
        if not isinstance(part, Mapping):
            raise InvalidRequestError(
                f"Either all {modality} embeddings come with fields, or none does.", stage="parse", modality=modality, item_index=len(items)
            )
        items += _parse_fields(modality, part, options)
    return DictEmbeddingItems(items, modality=modality)


def _parse_fields(modality: str, given: Mapping[str, object], options: ParseOptions) -> list[Mapping[str, Any]]:
    """The items of one mapping, each with its own row of every field."""
    name = modality + EMBEDS
    if name not in given:
        there_are = ", ".join(map(repr, given)) or "none"
        raise InvalidRequestError(
            f"A mapping of {modality} fields must have {name!r}; it has {there_are}.", stage="parse", modality=modality
        )
    embeds = _parse_embeds(modality, given[name], options)
    items: list[dict[str, Any]] = [{name: item} for item in embeds]
    for field, values in given.items():
        if field == name:
            continue
        rows = _rows(values, len(items))
        if rows is None or len(rows) != len(items):
            raise InvalidRequestError(
                f"{field!r} must have one row for each of the {len(items)} item(s).", stage="parse", modality=modality
            )
        for item, row in zip(items, rows, strict=True):
            item[field] = row
    return list(items)


def _rows(values: object, num_items: int) -> list[Any] | None:
    """The rows of a field, given as an array, as numbers, or as a list of arrays; None where it is nothing of the kind."""
    import numpy as np

    array = to_array(values)
    if array is None and isinstance(values, list):
        rows = [to_array(value) for value in values]
        if values and all(row is not None for row in rows):
            return rows
        try:
            array = np.asarray(values)
        except ValueError:  # rows of different lengths
            return None
    if array is None or not np.issubdtype(array.dtype, np.number):
        return None
    # The field of a single item may come without a dimension for items.
    return [array] if num_items == 1 and array.ndim == 1 and len(array) != 1 else list(array) if array.ndim else None


def _parse_embeds(modality: str, given: object, options: ParseOptions) -> list[Any]:
    parts = given if isinstance(given, list) else [given]
    items: list[Any] = []
    for part in parts:
        array = to_array(part)
        items += list(array) if array is not None and array.ndim == 3 else [part]
    parsed = []
    for index, item in enumerate(items):
        try:
            parsed.append(check_embeds(item, embed_size=options.embed_size, what="Embeddings"))
        except InvalidRequestError as error:
            raise error.locate(modality=modality, item_index=index) from error.__cause__
    return parsed
