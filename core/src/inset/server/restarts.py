"""When a front end that has ended is started again, and when that is of no use any more."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Final

__all__ = ["RestartPolicy"]

_QUICK_SECONDS: Final = 60.0
_MOST_QUICK_ENDS: Final = 6
_FIRST_DELAY_SECONDS: Final = 0.5


class RestartPolicy:
    """Waits twice as long before each start that follows on an early end, and gives up behind the sixth.

    Attributes:
        num_quick_ends: Ends within a minute of the start, since a front end last lived longer.
    """

    def __init__(self, *, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._due: dict[int, float] = {}
        self.num_quick_ends = 0

    @property
    def gives_up(self) -> bool:
        """There is no use in starting them again."""
        return self.num_quick_ends >= _MOST_QUICK_ENDS

    @property
    def is_waiting(self) -> bool:
        """One will be started again."""
        return bool(self._due)

    def note_end(self, number: int, *, lived_seconds: float) -> None:
        """Plans the next start of a front end."""
        self.num_quick_ends = self.num_quick_ends + 1 if lived_seconds < _QUICK_SECONDS else 0
        delay = _FIRST_DELAY_SECONDS * 2 ** (self.num_quick_ends - 1) if self.num_quick_ends else 0.0
        self._due[number] = self._clock() + delay

    def seconds_until_next(self, most: float) -> float:
        """Returns how long to wait for the next start, at most so long."""
        return min([most, *(max(0.0, due - self._clock()) for due in self._due.values())])

    def take_due(self) -> list[int]:
        """Takes the front ends that are to be started now."""
        numbers = [number for number, due in self._due.items() if due <= self._clock()]
        for number in numbers:
            del self._due[number]
        return numbers
