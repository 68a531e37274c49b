"""Runs encoders over the items that a step schedules, batch by batch, and finds the guilty one when a batch fails."""

from __future__ import annotations

import logging
import time
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass, field

import torch

from inset.inputs import ItemTensors, MultiModalFeature
from inset.modeling.interfaces import EncodedItem, ModelAdapter
from inset.step import RequestFailure
from inset.worker.encoder_cache import EncoderCache

__all__ = ["EncoderReport", "EncoderRunner"]

_LOG = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class EncoderReport:
    """What came out of one step's encoders.

    Attributes:
        failures: mm_hash -> why its item has no rows.
        num_runs: Items whose encoder ran.
        seconds: Time spent.
    """

    failures: Mapping[bytes, RequestFailure] = field(default_factory=dict)
    num_runs: int = 0
    seconds: float = 0.0


class EncoderRunner:
    """Turns items into rows of the encoder cache; used by one thread."""

    def __init__(self, adapter: ModelAdapter, cache: EncoderCache, *, device: torch.device, dtype: torch.dtype) -> None:
        self._adapter = adapter
        self._cache = cache
        self._device = device
        self._dtype = dtype

    def run(self, features: Sequence[MultiModalFeature]) -> EncoderReport:
        """Encodes items, those alike together, and keeps their rows; never raises for an item's sake.

        An item that occurs twice is encoded once. Finished embeddings are kept as they are.
        """
        started = time.perf_counter()
        failures: dict[bytes, RequestFailure] = {}
        batches: dict[Hashable, list[MultiModalFeature]] = {}
        distinct = {feature.mm_hash: feature for feature in features}
        for feature in distinct.values():
            try:
                if feature.is_embedding:
                    embeds = torch.tensor(_tensors(feature)["embeds"], device=self._device, dtype=self._dtype)
                    self._keep(feature, EncodedItem(embeds))
                else:
                    key = self._adapter.encoder_batch_key(feature.modality, _tensors(feature))
                    batches.setdefault((feature.modality, key), []).append(feature)
            except Exception as error:
                failures[feature.mm_hash] = _failure(feature, error)
        for batch in batches.values():
            failures.update(self._run_batch(batch))
        num_runs = sum(len(batch) for batch in batches.values())
        return EncoderReport(failures, num_runs, time.perf_counter() - started)

    def _run_batch(self, batch: Sequence[MultiModalFeature]) -> dict[bytes, RequestFailure]:
        try:
            items = [{name: torch.tensor(a, device=self._device) for name, a in _tensors(feature).items()} for feature in batch]
            rows = self._adapter.encode(batch[0].modality, items)
            if len(rows) != len(batch):
                raise _UnexpectedRowsError(f"the encoder gave {len(rows)} outputs for {len(batch)} items")
            encoded = [self._adapter.select_rows(batch[0].modality, *pair) for pair in zip(items, rows, strict=True)]
            for feature, item in zip(batch, encoded, strict=True):
                self._check(feature, item)
        except Exception as error:
            if len(batch) == 1:
                return {batch[0].mm_hash: _failure(batch[0], error)}
            alone = [self._run_batch([feature]) for feature in batch]
            return {mm_hash: failure for failed in alone for mm_hash, failure in failed.items()}
        for feature, item in zip(batch, encoded, strict=True):
            self._keep(feature, item)
        return {}

    def _check(self, feature: MultiModalFeature, item: EncodedItem) -> None:
        rows, offsets = item
        expected = (feature.num_embeds, self._adapter.embed_size)
        if tuple(rows.shape) != expected and not (feature.is_embedding and tuple(rows.shape) == (expected[0], self._adapter.hidden_size)):
            raise _UnexpectedRowsError(f"there are {tuple(rows.shape)} embeddings where the prompt has room for {expected}")
        if offsets is not None and offsets.shape != (self._adapter.num_position_axes, len(rows)):
            raise _UnexpectedRowsError(f"there are {tuple(offsets.shape)} positions for {len(rows)} embeddings")

    def _keep(self, feature: MultiModalFeature, item: EncodedItem) -> None:
        self._check(feature, item)
        self._cache.put(feature.mm_hash, item._replace(rows=item.rows.contiguous()))


class _UnexpectedRowsError(Exception):
    """Rows and placeholder differ; the message is fit for a client."""


def _tensors(feature: MultiModalFeature) -> ItemTensors:
    if feature.data is None:
        raise _UnexpectedRowsError("its processed tensors are not in the engine; send the request again")
    return feature.data


def _failure(feature: MultiModalFeature, error: Exception) -> RequestFailure:
    if not isinstance(error, _UnexpectedRowsError):
        _LOG.error("the encoder failed on %s %d", feature.modality, feature.item_index, exc_info=error)
    reason = str(error) if isinstance(error, _UnexpectedRowsError) else f"the encoder raised {type(error).__name__}"
    return RequestFailure(f"The {feature.modality} could not be encoded: {reason}.", feature.modality, feature.item_index, stage="encode")
