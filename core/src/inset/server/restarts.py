"""When a front end that has ended is started again, and when that is of no use any more."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable
from typing import Final

__all__ = ["RestartPolicy"]

_QUICK_SECONDS: Final = 60.0
_MOST_QUICK_ENDS: Final = 6
_FIRST_DELAY_SECONDS: Final = 0.5


class RestartPolicy:
    """Waits twice as long before each start that follows on an early end, and gives a front end up behind its sixth."""

    def __init__(self, *, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._due: dict[int, float] = {}
        self._num_quick_ends: Counter[int] = Counter()

    @property
    def is_waiting(self) -> bool:
        """One will be started again."""
        return bool(self._due)

    def note_end(self, number: int, *, lived_seconds: float) -> bool:
        """Plans the next start of a front end, and returns whether there will be one: not where it has ended early too often in a row."""
        self._num_quick_ends[number] = self._num_quick_ends[number] + 1 if lived_seconds < _QUICK_SECONDS else 0
        quick_ends = self._num_quick_ends[number]
        if quick_ends >= _MOST_QUICK_ENDS:
            return False
        self._due[number] = self._clock() + (_FIRST_DELAY_SECONDS * 2 ** (quick_ends - 1) if quick_ends else 0.0)
        return True

    def seconds_until_next(self, most: float) -> float:
        """Returns how long to wait for the next start, at most so long."""
        return min([most, *(max(0.0, due - self._clock()) for due in self._due.values())])

    def take_due(self) -> list[int]:
        """Takes the front ends that are to be started now."""
        numbers = [number for number, due in self._due.items() if due <= self._clock()]
        for number in numbers:
            del self._due[number]
        return numbers
