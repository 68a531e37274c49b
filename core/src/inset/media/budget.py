"""How much media a request, and the process, may hold: counted before it is fetched or decoded."""

from __future__ import annotations

import threading
from typing import Self

from inset.config import MediaConfig
from inset.errors import InvariantError, OverloadedError, TooLargeError
from inset.media.io import format_bytes

__all__ = ["ProcessBudget", "RequestBudget", "Reservation"]


class Reservation:
    """Decoded bytes set aside for one item until it is closed; closing twice is harmless.

    Attributes:
        num_bytes: Bytes of the decoded item.
        peak_bytes: Bytes that the process holds while the item is decoded; as many as `num_bytes` once it is.
    """

    __slots__ = ("_budget", "num_bytes", "peak_bytes")

    def __init__(self, budget: RequestBudget, num_bytes: int, peak_bytes: int) -> None:
        self._budget = budget
        self.num_bytes = num_bytes
        self.peak_bytes = peak_bytes

    def end_peak(self) -> None:
        """Gives back what decoding took beside its result."""
        self._budget.end_peak(self)

    def close(self) -> None:
        """Gives the bytes back to the request and to the process."""
        self._budget.give_back(self)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc_info: object) -> None:
        self.close()


class ProcessBudget:
    """The decoded bytes of all requests of a process together; shared between threads."""

    def __init__(self, max_decoded_bytes: int) -> None:
        self._max_decoded_bytes = max_decoded_bytes
        self._decoded_bytes = 0
        self._lock = threading.Lock()

    @property
    def decoded_bytes(self) -> int:
        """Bytes that are reserved now."""
        return self._decoded_bytes

    def take(self, num_bytes: int) -> None:
        """Counts bytes that a request reserves; requests go through `RequestBudget.reserve_decoded`.

        Raises:
            TooLargeError: The process could never hold them.
            OverloadedError: It cannot hold them now.
        """
        with self._lock:
            if num_bytes > self._max_decoded_bytes:
                raise TooLargeError(
                    f"Decoding it takes {format_bytes(num_bytes)}; this process may hold {format_bytes(self._max_decoded_bytes)}.",
                    stage="decode",
                )
            if self._decoded_bytes + num_bytes > self._max_decoded_bytes:
                raise OverloadedError(
                    f"Too much decoded media is in use: {format_bytes(self._decoded_bytes)} of {format_bytes(self._max_decoded_bytes)}, "
                    f"and this item needs {format_bytes(num_bytes)}. Try again shortly.",
                    stage="decode",
                )
            self._decoded_bytes += num_bytes

    def give_back(self, num_bytes: int) -> None:
        """Counts bytes back that a request had reserved."""
        with self._lock:
            self._decoded_bytes -= num_bytes


class RequestBudget:
    """The bytes of one request: fetched and decoded. Whoever owns the request closes it; then all its reservations end."""

    def __init__(self, config: MediaConfig, process: ProcessBudget) -> None:
        self._config = config
        self._process = process
        self._lock = threading.Lock()
        self._downloaded_bytes = 0
        self._reservations: set[Reservation] = set()
        self._is_closed = False

    @property
    def downloaded_bytes(self) -> int:
        """Bytes fetched so far."""
        return self._downloaded_bytes

    @property
    def decoded_bytes(self) -> int:
        """Decoded bytes that are reserved now."""
        with self._lock:
            return sum(reservation.num_bytes for reservation in self._reservations)

    def add_downloaded(self, num_bytes: int) -> None:
        """Counts bytes that were fetched, or that are about to be.

        Raises:
            TooLargeError: The request would fetch more than it may; nothing is counted then.
        """
        limit = self._config.max_request_download_bytes
        with self._lock:
            if self._downloaded_bytes + num_bytes > limit:
                raise TooLargeError(f"The media of this request has more than {format_bytes(limit)} together.", stage="fetch")
            self._downloaded_bytes += num_bytes

    def reserve_decoded(
        self, num_bytes: int, *, peak_bytes: int = 0, modality: str | None = None, item_index: int | None = None
    ) -> Reservation:
        """Sets decoded bytes of one item aside, before they are allocated.

        Args:
            num_bytes: Bytes of the decoded item.
            peak_bytes: Bytes that decoding it takes, where that is more; they count for the process alone, because they pass.
            modality: Of the item, for errors.
            item_index: Its place among those of its modality, for errors.

        Raises:
            TooLargeError: The item or the request would hold more than it may.
            OverloadedError: The process holds too much right now.
            InvariantError: The request has ended: nobody would give the bytes back.
        """
        item_limit, limit = self._config.max_item_decoded_bytes, self._config.max_request_decoded_bytes
        with self._lock:
            if self._is_closed:
                raise InvariantError("Decoded bytes were to be reserved for a request that has ended.", stage="decode")
            total = sum(reservation.num_bytes for reservation in self._reservations) + num_bytes
            if num_bytes > item_limit:
                message = f"It would decode to {format_bytes(num_bytes)}; {format_bytes(item_limit)} are allowed for one item."
                raise TooLargeError(message, stage="decode", modality=modality, item_index=item_index)
            if total > limit:
                message = f"The media of this request would decode to {format_bytes(total)} together; {format_bytes(limit)} are allowed."
                raise TooLargeError(message, stage="decode", modality=modality, item_index=item_index)
            try:
                self._process.take(max(num_bytes, peak_bytes))
            except (TooLargeError, OverloadedError) as error:
                raise error.locate(modality=modality, item_index=item_index) from None
            reservation = Reservation(self, num_bytes, max(num_bytes, peak_bytes))
            self._reservations.add(reservation)
        return reservation

    def close(self) -> None:
        """Ends all reservations of the request, and takes no further ones; may be called again."""
        with self._lock:
            self._is_closed = True
            reservations = tuple(self._reservations)
        for reservation in reservations:
            reservation.close()

    def give_back(self, reservation: Reservation) -> None:
        """Ends one reservation; one that has ended already counts no second time."""
        with self._lock:
            if reservation not in self._reservations:
                return
            self._reservations.remove(reservation)
            num_bytes = reservation.peak_bytes
        self._process.give_back(num_bytes)

    def end_peak(self, reservation: Reservation) -> None:
        """Keeps of one reservation what the decoded item takes; one that has ended has nothing to give back."""
        with self._lock:
            if reservation not in self._reservations:
                return
            num_bytes = reservation.peak_bytes - reservation.num_bytes
            reservation.peak_bytes = reservation.num_bytes
        self._process.give_back(num_bytes)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc_info: object) -> None:
        self.close()
