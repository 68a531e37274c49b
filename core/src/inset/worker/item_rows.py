"""Finds the rows that the windows of a step need, and who cannot go on without them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from inset.inputs import MultiModalFeature
from inset.step import RequestFailure
from inset.worker.encoder_cache import EncoderCache
from inset.worker.input_batch import StepSlice
from inset.worker.splice import SpliceRun, window_slices

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
            rows = cache.get(feature.mm_hash) if found else None
            if found and (rows is None or feature.mm_hash in failed or len(rows) != feature.num_embeds):
                failure = _blame(feature, failed.get(feature.mm_hash))
                break
            runs.extend(SpliceRun(f.position, rows[f.first_row : f.first_row + f.num_rows]) for f in found if rows is not None)
        if failure is None:
            gathered.runs[request_id] = runs
        else:
            gathered.failures[request_id] = failure
    return gathered


def _blame(feature: MultiModalFeature, known: RequestFailure | None) -> RequestFailure:
    missing = f"The encoder's output for the {feature.modality} is missing in the worker; send the request again."
    return RequestFailure(known.message if known else missing, feature.modality, feature.item_index)
