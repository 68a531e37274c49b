"""What passes from processing to the engine. Values only; no torch at import, and `sched` may read all of it."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final, TypeAlias

from inset.config import MediaConfig
from inset.identity import JSON
from inset.sampling_params import SamplingParams

if TYPE_CHECKING:
    import numpy as np

__all__ = [
    "MODALITIES",
    "EngineRequest",
    "ItemPlan",
    "ItemTensors",
    "MediaIOFactory",
    "MultiModalFeature",
    "PlaceholderRange",
    "ProcessedPrompt",
    "runs_from_mask",
]

MODALITIES: Final = ("image", "video", "audio")

ItemTensors: TypeAlias = "Mapping[str, np.ndarray[Any, Any]]"
"""The processed tensors of one item by name, such as ``pixel_values``: read-only arrays on the host, never bfloat16."""

MediaIOFactory: TypeAlias = Callable[[Mapping[str, JSON], MediaConfig], Any]
"""Takes the media IO options of one request and the core's media options, and returns a `MediaIO`, as the constructor of one does.

Unknown options raise `InvalidRequestError`.
"""


def runs_from_mask(mask: Sequence[bool]) -> tuple[tuple[int, int], ...] | None:
    """Returns the runs of True in a mask as (start, stop) pairs, or None where every position is True.

    Example: ``[False, True, True, False, True]`` gives ``((1, 3), (4, 5))``.
    """
    runs: list[tuple[int, int]] = []
    start: int | None = None
    for index, value in enumerate([*mask, False]):
        if value and start is None:
            start = index
        elif not value and start is not None:
            runs.append((start, index))
            start = None
    return None if runs == [(0, len(mask))] else tuple(runs)


@dataclass(frozen=True, slots=True)
class PlaceholderRange:
    """The prompt positions that stand for one item.

    Example: ``<start> e e <newline> e e <end>`` at prompt position 5 is ``PlaceholderRange(5, 7, ((1, 3), (4, 6)))``: 7 tokens, 4 embeds.

    Attributes:
        offset: First position, in tokens from the start of the prompt.
        length: How many positions, in tokens.
        is_embed: The positions that receive an embedding, as runs (start, stop) relative to `offset`, ascending and disjoint; None means
            all of them. The others, such as separators, keep the embedding of their token.
    """

    offset: int
    length: int
    is_embed: tuple[tuple[int, int], ...] | None = None

    def __post_init__(self) -> None:
        if self.offset < 0 or self.length < 1:
            raise ValueError(f"A placeholder needs an offset of 0 or more and a length of 1 or more: {self.offset=} {self.length=}")
        last = 0
        for start, stop in self.is_embed or ():
            if not last <= start < stop <= self.length:
                raise ValueError(f"is_embed must be ascending, disjoint runs inside the placeholder: {self.is_embed=} {self.length=}")
            last = stop

    @property
    def end(self) -> int:
        """The position behind the last one."""
        return self.offset + self.length

    @property
    def runs(self) -> tuple[tuple[int, int], ...]:
        """The positions that receive an embedding, as runs relative to `offset`, also where `is_embed` is None."""
        return ((0, self.length),) if self.is_embed is None else self.is_embed

    @property
    def num_embeds(self) -> int:
        """How many positions receive an embedding."""
        return sum(stop - start for start, stop in self.runs)

    def num_embeds_before(self, position: int) -> int:
        """Returns how many embeds lie before a position that is relative to `offset`, clamped to the range.

        In the example above: ``num_embeds_before(4) == 2`` and ``num_embeds_before(5) == 3``.
        """
        return sum(max(0, min(stop, position) - start) for start, stop in self.runs)


@dataclass(frozen=True, slots=True, kw_only=True)
class ItemPlan:
    """What one item will become, known before it is decoded.

    Attributes:
        num_tokens: Prompt positions.
        num_embeds: Positions that receive an embedding; equals the rows that the encoder gives.
        is_embed: Runs as in `PlaceholderRange`; None means all positions.
        grid: Patches or tiles along (t, h, w), or None where the family has no grid.
        tensor_bytes: Size of the processed tensors, in bytes.
        peak_bytes: Size of the largest intermediate while materialising, decoded media included, in bytes.
        is_exact: False where decoding can still leave frames out, as of a video; then the numbers are those of all frames.
        details: What the family itself needs later, as JSON.
        is_embedding: It stands for finished embeddings, which no encoder makes; set by the core.
    """

    num_tokens: int
    num_embeds: int
    is_embed: tuple[tuple[int, int], ...] | None = None
    grid: tuple[int, int, int] | None = None
    tensor_bytes: int = 0
    peak_bytes: int = 0
    is_exact: bool = True
    details: Mapping[str, JSON] = field(default_factory=dict)
    is_embedding: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class MultiModalFeature:
    """One item of a request, in the order of the prompt.

    Attributes:
        modality: ``image``, ``video`` or ``audio``, or ``prompt`` for embeddings that stand for text.
        item_index: Position among the request's items of this modality.
        mm_hash: Identity, 32 bytes.
        placeholder: Its positions in the prompt.
        data: Tensors, or None where the engine half of the processor cache supplies them.
        handle: What the cache's front half tells its engine half about this item, or None.
        plan: The plan that the placeholder was made from.
        is_embedding: `data` holds finished embeddings under ``embeds``, ``(num_embeds, hidden_size)`` float32, and the encoder is skipped.
    """

    modality: str
    item_index: int
    mm_hash: bytes
    placeholder: PlaceholderRange
    data: ItemTensors | None
    handle: Any = None
    plan: ItemPlan
    is_embedding: bool = False

    @property
    def num_embeds(self) -> int:
        """Embeds that this item takes in the encoder cache."""
        return self.placeholder.num_embeds


@dataclass(frozen=True, slots=True, kw_only=True)
class ProcessedPrompt:
    """A prompt that is ready for an engine: ours, transformers' `generate`, or another one.

    Attributes:
        prompt_token_ids: Token ids with the placeholders expanded.
        mm_kwargs: Modality -> one entry per item: its tensors, or None where a cache in the engine has them.
        mm_hashes: Modality -> `mm_hash` per item, 32 bytes each.
        mm_placeholders: Modality -> positions per item.
        mm_plans: Modality -> plan per item.
        mm_handles: Modality -> what the processor cache's front half tells its engine half, per item.
        prompt_text: The rendered text, where there was one.
        prompt_embeds: ``(num_tokens, hidden_size)`` float32: embeddings given by the client instead of token ids, or None.
        cache_salt: Separates tenants in every cache.
    """

    prompt_token_ids: Sequence[int]
    mm_kwargs: Mapping[str, Sequence[ItemTensors | None]] = field(default_factory=dict)
    mm_hashes: Mapping[str, Sequence[bytes]] = field(default_factory=dict)
    mm_placeholders: Mapping[str, Sequence[PlaceholderRange]] = field(default_factory=dict)
    mm_plans: Mapping[str, Sequence[ItemPlan]] = field(default_factory=dict)
    mm_handles: Mapping[str, Sequence[Any]] = field(default_factory=dict)
    prompt_text: str | None = None
    prompt_embeds: np.ndarray[Any, Any] | None = None
    cache_salt: str | None = None

    @property
    def num_tokens_by_modality(self) -> dict[str, int]:
        """Placeholder tokens per modality."""
        return {modality: sum(r.length for r in ranges) for modality, ranges in self.mm_placeholders.items()}


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineRequest:
    """One answer to generate; `n` answers are `n` requests with ids of their own.

    Attributes:
        request_id: Unique among the requests that run.
        prompt_token_ids: Token ids with the placeholders expanded; never empty.
        mm_features: Items in the order of the prompt.
        sampling_params: With `max_tokens` resolved against the context length and `n` equal to 1.
        eos_token_ids: Tokens that end the answer unless `ignore_eos`.
        prompt_embeds: As in `ProcessedPrompt`.
        prompt_embeds_hash: Digest of the shape and bytes of `prompt_embeds`; without it the blocks of this request are never shared.
        cache_salt: As in `ProcessedPrompt`.
        arrival_time_seconds: `time.monotonic()` of the front end when it handed the request over; 0 where nobody says. That clock counts
            from the start of the machine on Linux, macOS and Windows, so that processes of one machine can compare it.
    """

    request_id: str
    prompt_token_ids: Sequence[int]
    mm_features: Sequence[MultiModalFeature] = ()
    sampling_params: SamplingParams = field(default_factory=SamplingParams)
    eos_token_ids: tuple[int, ...] = ()
    prompt_embeds: np.ndarray[Any, Any] | None = None
    prompt_embeds_hash: bytes | None = None
    cache_salt: str | None = None
    arrival_time_seconds: float = 0.0
