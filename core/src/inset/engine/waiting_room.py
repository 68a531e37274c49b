"""How many prompts may be prepared or wait for their first token at a time."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from inset.errors import OverloadedError

__all__ = ["WaitingRoom"]


class WaitingRoom:
    """Counts what is being prepared, and refuses what would have to wait behind too many.

    Attributes:
        num_preparing: Prompts that are being prepared.

    Args:
        max_waiting_requests: Most prompts that are prepared or wait for the first token of an answer; None for no limit.
    """

    def __init__(self, max_waiting_requests: int | None) -> None:
        self.num_preparing = 0
        self._max_waiting_requests = max_waiting_requests

    def check(self, num_waiting: int) -> None:
        """Refuses a request beyond those that wait already; counted here, because the engine core may be silent for a whole step.

        Args:
            num_waiting: Prompts that have been prepared and have no token yet.

        Raises:
            OverloadedError: There are too many.
        """
        most = self._max_waiting_requests
        if most is not None and self.num_preparing + num_waiting >= most:
            raise OverloadedError(
                f"{self.num_preparing} requests are being prepared and {num_waiting} wait for their first token; "
                f"at most {most} may (--max-waiting-requests). Come again later.",
                stage="queue",
            )

    @contextmanager
    def preparing(self) -> Iterator[None]:
        """Counts a prompt while it is being prepared."""
        self.num_preparing += 1
        try:
            yield
        finally:
            self.num_preparing -= 1
