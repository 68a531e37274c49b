"""Budgets: counted before anything is fetched or decoded."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import pytest

from inset.config import MediaConfig
from inset.errors import InvariantError, OverloadedError, TooLargeError
from inset.media.budget import ProcessBudget, RequestBudget

CONFIG = MediaConfig(max_request_download_bytes=100, max_item_decoded_bytes=50, max_request_decoded_bytes=80)


def make_budget(process: ProcessBudget | None = None) -> RequestBudget:
    return RequestBudget(CONFIG, process or ProcessBudget(1000))


def test_downloads_of_a_request_are_counted_together() -> None:
    budget = make_budget()
    budget.add_downloaded(60)
    budget.add_downloaded(40)
    with pytest.raises(TooLargeError) as caught:
        budget.add_downloaded(1)
    assert (caught.value.status, caught.value.stage, budget.downloaded_bytes) == (413, "fetch", 100)


def test_item_over_its_cap_is_refused_by_place() -> None:
    budget = make_budget()
    with pytest.raises(TooLargeError, match="one item") as caught:
        budget.reserve_decoded(51, modality="video", item_index=3)
    assert (caught.value.stage, caught.value.modality, caught.value.item_index) == ("decode", "video", 3)
    assert budget.decoded_bytes == 0


def test_items_of_a_request_are_counted_together() -> None:
    budget = make_budget()
    budget.reserve_decoded(50)
    budget.reserve_decoded(30)
    with pytest.raises(TooLargeError, match="this request"):
        budget.reserve_decoded(1)


def test_a_full_process_is_our_own_limit_and_asks_to_come_again() -> None:
    process = ProcessBudget(60)
    make_budget(process).reserve_decoded(40)
    with pytest.raises(OverloadedError, match="Try again") as caught:
        make_budget(process).reserve_decoded(30, modality="image", item_index=1)
    assert (caught.value.status, caught.value.retry_after_seconds > 0) == (503, True)
    assert (caught.value.modality, caught.value.item_index) == ("image", 1)


def test_item_that_the_process_could_never_hold_is_too_large() -> None:
    with pytest.raises(TooLargeError):
        make_budget(ProcessBudget(10)).reserve_decoded(11)


def test_refused_reservation_counts_nowhere() -> None:
    process = ProcessBudget(60)
    budget = make_budget(process)
    budget.reserve_decoded(45)
    for num_bytes in (51, 40, 20):
        with pytest.raises((TooLargeError, OverloadedError)):
            budget.reserve_decoded(num_bytes)
    assert (budget.decoded_bytes, process.decoded_bytes) == (45, 45)


def test_closing_a_reservation_gives_its_bytes_back_once() -> None:
    process = ProcessBudget(1000)
    budget = make_budget(process)
    kept = budget.reserve_decoded(20)
    with budget.reserve_decoded(30) as reservation:
        assert process.decoded_bytes == 50
    reservation.close()
    assert (budget.decoded_bytes, process.decoded_bytes, kept.num_bytes) == (20, 20, 20)


def test_closing_a_request_gives_everything_back_once() -> None:
    process = ProcessBudget(1000)
    with make_budget(process) as budget:
        reservation = budget.reserve_decoded(20)
        budget.reserve_decoded(30)
    budget.close()
    reservation.close()
    assert process.decoded_bytes == 0


def test_peak_of_a_decode_counts_for_the_process_alone_and_until_it_ends() -> None:
    process = ProcessBudget(1000)
    budget = make_budget(process)
    reservation = budget.reserve_decoded(20, peak_bytes=300)
    assert (budget.decoded_bytes, process.decoded_bytes) == (20, 300)
    reservation.end_peak()
    reservation.end_peak()
    assert (budget.decoded_bytes, process.decoded_bytes) == (20, 20)
    with budget.reserve_decoded(30, peak_bytes=400) as other:
        assert process.decoded_bytes == 420
    other.end_peak()
    assert process.decoded_bytes == 20
    assert budget.reserve_decoded(10, peak_bytes=5).peak_bytes == 10
    budget.close()
    assert process.decoded_bytes == 0


def test_peak_that_the_process_could_never_hold_is_too_large() -> None:
    process = ProcessBudget(100)
    budget = make_budget(process)
    with pytest.raises(TooLargeError, match="takes 101 bytes"):
        budget.reserve_decoded(1, peak_bytes=101)
    budget.reserve_decoded(1, peak_bytes=60)
    with pytest.raises(OverloadedError):
        budget.reserve_decoded(1, peak_bytes=60)
    assert (budget.decoded_bytes, process.decoded_bytes) == (1, 60)


def test_threads_never_reserve_more_than_the_process_may_hold() -> None:
    process = ProcessBudget(100)

    def reserve_and_close(_: int) -> int:
        with make_budget(process) as budget:
            try:
                budget.reserve_decoded(30)
            except OverloadedError:
                return 0
            return process.decoded_bytes

    with ThreadPoolExecutor(8) as pool:
        assert max(pool.map(reserve_and_close, range(400), timeout=60)) <= 100
    assert process.decoded_bytes == 0


def test_request_that_has_ended_reserves_nothing_that_nobody_would_give_back() -> None:
    process = ProcessBudget(1024)
    budget = RequestBudget(MediaConfig(), process)
    budget.reserve_decoded(10)
    budget.close()
    with pytest.raises(InvariantError):
        budget.reserve_decoded(10)
    assert process.decoded_bytes == 0
