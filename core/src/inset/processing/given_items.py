"""Which items somebody meant who gave a modality one item, several, or an array of several."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from numbers import Real
from typing import Final

from inset.processing.given_media import is_pil_image, to_array

__all__ = ["EMBEDS", "split_items"]

EMBEDS: Final = "_embeds"
"""What ends the name of a modality whose items are embeddings."""

_BATCH_DIMENSIONS: Final = {"image": 4, "video": 5, "image_embeds": 3, "video_embeds": 3, "audio_embeds": 3}
"""Name -> dimensions of an array that holds several items."""


def split_items(name: str, given: object) -> Sequence[object]:
    """Returns the items of one modality, also where a single one came without a list around it.

    A pair of frames with their metadata, or of samples with their rate, is one item; so are pictures that are a video together. An array
    with one dimension more than an item holds several.

    Args:
        name: A modality, or the name of its embeddings, such as ``image_embeds``.
        given: What was given for it.
    """
    if isinstance(given, list | tuple):
        is_pair = isinstance(given, tuple) and len(given) == 2 and isinstance(given[1], Mapping | Real)
        is_frames = name == "video" and bool(given) and all(_is_picture(item) for item in given)
        if is_pair or is_frames:
            return [given]
        return [part for item in given for part in _rows(name, item)] if name.endswith(EMBEDS) else given
    return _rows(name, given)


def _rows(name: str, given: object) -> Sequence[object]:
    array = to_array(given)
    return [given] if array is None or array.ndim != _BATCH_DIMENSIONS.get(name) else list(array)


def _is_picture(item: object) -> bool:
    """Whether this can be one frame: a video has a dimension more, and embeddings are floats."""
    if is_pil_image(item):
        return True
    array = to_array(item)
    return array is not None and array.dtype.name == "uint8" and array.ndim in (2, 3)
