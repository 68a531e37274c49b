"""Finds the rows that the windows of a step need, and who cannot go on without them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import torch

from inset.inputs import MultiModalFeature
from inset.modeling.interfaces import EncodedItem
from inset.step import RequestFailure
from inset.worker.encoder_cache import EncoderCache
from inset.worker.input_batch import StepSlice
from inset.worker.splice import RowSlice, SpliceRun, window_slices

__all__ = ["GatheredRows", "gather_rows"]


class GatheredRows(NamedTuple):
    """Rows of one step.

    Attributes:
        runs: Request id -> its rows, at positions relative to its window.
        failures: Request id -> why it cannot go on.
    """

    runs: dict[str, list[SpliceRun]]
    failures: dict[str, RequestFailure]


def gather_rows(slices: Sequence[StepSlice], cache: EncoderCache, failed: Mapping[bytes, RequestFailure]) -> GatheredRows:
    """Returns the rows for each request's window.

    Args:
        slices: The windows of the step.
        cache: Where the rows of items are.
        failed: mm_hash -> why its encoder failed in this step.
    """
    gathered = GatheredRows({}, {})
    for piece in slices:
        request_id = piece.request_id
        runs: list[SpliceRun] = []
        failure = piece.state.refusal
        given = piece.state.prompt_rows
        if given is not None and piece.start < len(given):
            runs.append(SpliceRun(0, given[piece.start : piece.stop]))
        for feature in piece.state.request.mm_features if failure is None else ():
            found = window_slices(feature.placeholder, piece.start, piece.stop)
            if not found:
                continue
            item = cache.get(feature.mm_hash)
            if item is None or feature.mm_hash in failed or len(item.rows) != feature.num_embeds:
                failure = _blame(feature, failed.get(feature.mm_hash))
                break
            runs.extend(_cut(item, found, _told_positions(item, feature, piece.state.positions.positions)))
        if failure is None:
            gathered.runs[request_id] = runs
        else:
            gathered.failures[request_id] = failure
    return gathered


def _told_positions(item: EncodedItem, feature: MultiModalFeature, prompt_positions: torch.Tensor) -> torch.Tensor | None:
    """Returns ``(num_axes, num_embeds)`` positions of an item's rows in this prompt, where its encoder told them."""
    if item.offsets is None:
        return None
    first = feature.placeholder.offset + feature.placeholder.runs[0][0]
    return prompt_positions[:, first, None] + item.offsets


def _cut(item: EncodedItem, slices: Sequence[RowSlice], told: torch.Tensor | None) -> list[SpliceRun]:
    return [
        SpliceRun(position, item.rows[start : start + count], None if told is None else told[:, start : start + count])
        for position, start, count in slices
    ]


def _blame(feature: MultiModalFeature, known: RequestFailure | None) -> RequestFailure:
    missing = f"The encoder's output for the {feature.modality} is missing in the worker; send the request again."
    return RequestFailure(known.message if known else missing, feature.modality, feature.item_index, stage="encode")
