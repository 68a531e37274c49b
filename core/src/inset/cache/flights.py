"""Single-flight: one item is processed once, however many requests want it at the same time."""

from __future__ import annotations

import asyncio
import copy
import threading
from collections.abc import Callable
from contextlib import suppress

from inset.cache.base import Flight
from inset.cache.values import ProcessedItem
from inset.errors import InvariantError

__all__ = ["FlightTable"]


class FlightTable:
    """The items that are being processed now, by hash. Thread-safe."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._groups: dict[bytes, _Group] = {}

    def join(self, mm_hash: bytes) -> Flight:
        """Joins the flight of an item, or starts one as its leader."""
        with self._lock:
            group = self._groups.get(mm_hash)
            if group is None:
                group = self._groups[mm_hash] = _Group(self._lock, lambda ended: self._remove(mm_hash, ended))
            return group.add()

    def __len__(self) -> int:
        """How many flights there are; 0 when idle."""
        return len(self._groups)

    def _remove(self, mm_hash: bytes, group: _Group) -> None:
        if self._groups.get(mm_hash) is group:
            del self._groups[mm_hash]


class _Group:
    """The participants of one flight, the first of them leading. Its methods are called under the table's lock."""

    def __init__(self, lock: threading.Lock, remove: Callable[[_Group], None]) -> None:
        self.lock = lock
        self.item: ProcessedItem | None = None
        self.error: BaseException | None = None
        self._remove = remove
        self._participants: list[_Participant] = []

    @property
    def is_done(self) -> bool:
        return self.item is not None or self.error is not None

    def add(self) -> _Participant:
        participant = _Participant(self)
        self._participants.append(participant)
        if self.is_done:
            participant.wake()
        return participant

    def is_led_by(self, participant: _Participant) -> bool:
        return not self.is_done and bool(self._participants) and self._participants[0] is participant

    def has(self, participant: _Participant) -> bool:
        return participant in self._participants

    def finish(self, *, item: ProcessedItem | None = None, error: BaseException | None = None) -> None:
        self.item, self.error = item, error
        if error is not None:
            self._remove(self)
        for participant in self._participants:
            participant.wake()

    def discard(self, participant: _Participant) -> None:
        self._participants.remove(participant)
        participant.wake()
        if not self._participants:
            self._remove(self)
        elif not self.is_done:
            self._participants[0].wake()


class _Participant(Flight):
    def __init__(self, group: _Group) -> None:
        self._group = group
        self._woken = threading.Event()
        self._watchers: list[Callable[[], None]] = []

    @property
    def is_leader(self) -> bool:
        with self._group.lock:
            return self._group.is_led_by(self)

    def complete(self, item: ProcessedItem) -> None:
        self._finish(item=item)

    def fail(self, error: BaseException) -> None:
        self._finish(error=error)

    def leave(self) -> None:
        with self._group.lock:
            if self._group.has(self):
                self._group.discard(self)

    def wait(self, timeout_seconds: float) -> ProcessedItem | None:
        if not self.is_leader and not self._woken.wait(timeout_seconds):
            raise TimeoutError(f"An item that another request is processing was not ready within {timeout_seconds:g} s.")
        return self._outcome()

    async def wait_async(self, timeout_seconds: float) -> ProcessedItem | None:
        loop, woken = asyncio.get_running_loop(), asyncio.Event()

        def watch() -> None:
            # The loop may have been closed since: then nobody waits there any more.
            with suppress(RuntimeError):
                loop.call_soon_threadsafe(woken.set)

        with self._group.lock:
            must_wait = not self._woken.is_set() and not self._group.is_led_by(self)
            if must_wait:
                self._watchers.append(watch)
        if must_wait:
            try:
                async with asyncio.timeout(timeout_seconds):
                    await woken.wait()
            finally:
                with self._group.lock, suppress(ValueError):
                    self._watchers.remove(watch)
        return self._outcome()

    def wake(self) -> None:
        """Ends the waiting; called under the lock."""
        self._woken.set()
        watchers, self._watchers = self._watchers, []
        for watch in watchers:
            watch()

    def _finish(self, *, item: ProcessedItem | None = None, error: BaseException | None = None) -> None:
        with self._group.lock:
            if not self._group.has(self):
                return
            if not self._group.is_led_by(self):
                raise InvariantError("Only the leader of a flight may end it, and only once.")
            self._group.finish(item=item, error=error)

    def _outcome(self) -> ProcessedItem | None:
        with self._group.lock:
            if not self._group.has(self):
                raise InvariantError("A flight was waited for after it had been left.")
            if self._group.error is not None:
                raise _copy_of(self._group.error)
            return self._group.item


def _copy_of(error: BaseException) -> BaseException:
    """Returns an error of the same kind, since each request notes its own item and traceback in it."""
    try:
        twin = copy.copy(error)
    except Exception:  # an exception whose constructor wants other arguments cannot be copied
        return error
    twin.__cause__, twin.__suppress_context__ = error.__cause__, True
    return twin
