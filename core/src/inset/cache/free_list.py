"""Which parts of a segment are free: a list of gaps that grow together again. Not thread-safe; no memory."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable

__all__ = ["FreeList"]


class FreeList:
    """Gives out spans of a segment, always from the lowest gap that is large enough, so that high parts stay untouched for long.

    Example: of 100 bytes, spans of 40 and 30 lie at 0 and 40; once the first is freed, the gaps are ``(0, 40)`` and ``(70, 30)``; once the
    second is freed too, they are ``(0, 100)``.

    Args:
        num_bytes: Size of the segment.
    """

    def __init__(self, num_bytes: int) -> None:
        self._end = num_bytes
        self._offsets = [0] if num_bytes else []
        self._sizes = {0: num_bytes} if num_bytes else {}
        self.num_used_bytes = 0

    @property
    def gaps(self) -> list[tuple[int, int]]:
        """The free parts as (offset, size), ascending; no two of them touch."""
        return [(offset, self._sizes[offset]) for offset in self._offsets]

    def allocate(self, num_bytes: int) -> int | None:
        """Returns the offset of a span that is free until now, or None where no gap is large enough."""
        assert num_bytes > 0
        for position, offset in enumerate(self._offsets):
            size = self._sizes[offset]
            if size < num_bytes:
                continue
            del self._sizes[offset]
            if size == num_bytes:
                del self._offsets[position]
            else:
                self._offsets[position] = offset + num_bytes
                self._sizes[offset + num_bytes] = size - num_bytes
            self.num_used_bytes += num_bytes
            return offset
        return None

    def free(self, offset: int, num_bytes: int) -> None:
        """Gives a span back; it grows together with the gaps beside it."""
        self.num_used_bytes -= num_bytes
        position = bisect_left(self._offsets, offset)
        if position < len(self._offsets) and self._offsets[position] == offset + num_bytes:
            num_bytes += self._sizes.pop(self._offsets.pop(position))
        before = self._offsets[position - 1] if position else None
        if before is not None and before + self._sizes[before] == offset:
            self._sizes[before] += num_bytes
        else:
            self._offsets.insert(position, offset)
            self._sizes[offset] = num_bytes

    def could_hold(self, num_bytes: int, fixed: Iterable[tuple[int, int]]) -> bool:
        """Tells whether a span would fit if everything but the spans in `fixed`, as (offset, size), were free."""
        end = 0
        for offset, size in sorted(fixed):
            if offset - end >= num_bytes:
                return True
            end = offset + size
        return self._end - end >= num_bytes
