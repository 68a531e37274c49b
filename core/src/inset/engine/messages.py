"""What front ends and the engine core tell each other: plain values, so that any transport can carry them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, TypeAlias

from inset.inputs import EngineRequest
from inset.outputs import EngineOutput

__all__ = [
    "AbortRequests",
    "AddRequests",
    "CacheMessage",
    "CacheMissed",
    "DiscardCommit",
    "EngineCommand",
    "EngineEvent",
    "EngineStats",
    "Heartbeat",
    "ItemsReset",
    "Reset",
    "ResetDone",
    "ResetItems",
    "ResetTarget",
    "StepDone",
]

ResetTarget: TypeAlias = Literal["encoder_cache", "mm_cache", "prefix_cache"]


@dataclass(frozen=True, slots=True)
class AddRequests:
    """Answers to one prompt, to be generated side by side.

    Attributes:
        commit_id: The id under which the processor cache committed the prompt's items.
        requests: One per answer; their items are the same.
    """

    commit_id: str
    requests: Sequence[EngineRequest]


@dataclass(frozen=True, slots=True)
class AbortRequests:
    """Answers that nobody waits for any more; unknown ids are ignored."""

    request_ids: Sequence[str]


@dataclass(frozen=True, slots=True)
class DiscardCommit:
    """A prompt whose items were committed, and which will not be sent: its client went away in between."""

    commit_id: str


@dataclass(frozen=True, slots=True)
class CacheMessage:
    """What the front half of the processor cache tells its engine half; sent in the order of commits."""

    message: Any


@dataclass(frozen=True, slots=True)
class Reset:
    """Forget what a cache holds, as far as nothing uses it.

    Attributes:
        target: ``mm_cache`` is held by the front ends, all of which are told; the others by the engine core.
        token: The sender's name for it; `ResetDone` bears it.
    """

    target: ResetTarget
    token: str


@dataclass(frozen=True, slots=True)
class ItemsReset:
    """The sender has forgotten its processed items, as `ResetItems` asked; what its cache has to say about it was sent before."""

    token: str


EngineCommand: TypeAlias = AddRequests | AbortRequests | DiscardCommit | CacheMessage | Reset | ItemsReset


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineStats:
    """The engine core's gauges and counters, all front ends together.

    Attributes:
        num_running: Requests that take part in steps.
        num_waiting: Requests that wait for their first step.
        values: Name -> number, for the metrics page.
    """

    num_running: int = 0
    num_waiting: int = 0
    values: Mapping[str, float] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class StepDone:
    """What one step gave.

    Attributes:
        outputs: Per request.
        stats: The core's state behind the step.
        released: Commits whose items the engine half no longer holds; their leases end now.
    """

    outputs: Sequence[EngineOutput]
    stats: EngineStats
    released: Sequence[str] = ()


@dataclass(frozen=True, slots=True)
class CacheMissed:
    """A prompt's items are not in the engine half; nothing of it was admitted, and what was held for it has been released.

    Attributes:
        commit_id: As in `AddRequests`.
        missing: As in `inset.cache.values.MultiModalCacheMissError`.
        lost_before: The same.
    """

    commit_id: str
    missing: Sequence[tuple[bytes, int]]
    lost_before: int = 0


@dataclass(frozen=True, slots=True)
class ResetItems:
    """Forget processed items, and say so with `ItemsReset`."""

    token: str


@dataclass(frozen=True, slots=True)
class ResetDone:
    """A reset has ended, in every process that it concerns."""

    token: str


EngineEvent: TypeAlias = StepDone | CacheMissed | ResetItems | ResetDone


@dataclass(frozen=True, slots=True)
class Heartbeat:
    """The engine core's process runs; the transport's own, once a second.

    Attributes:
        num_received_bytes: Bytes of messages that it has received from this front end so far.
        stats: The engine core's state, also for a front end whose requests have all ended while others run.
    """

    num_received_bytes: int
    stats: EngineStats
