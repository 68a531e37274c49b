"""Single-flight: one leader, everybody served, nobody forgotten."""

import asyncio
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest

from inset.cache.base import Flight
from inset.cache.flights import FlightTable
from inset.cache.values import ProcessedItem
from inset.errors import InvariantError, MediaDecodeError
from inset.inputs import ItemPlan

KEY = b"k" * 32
LIMIT_SECONDS = 20.0


def make_item() -> ProcessedItem:
    return ProcessedItem(ItemPlan(num_tokens=1, num_embeds=1), {"pixel_values": np.arange(4, dtype=np.uint8)})


def test_first_participant_leads_and_the_others_get_its_item() -> None:
    table, item = FlightTable(), make_item()
    flights = [table.join(KEY) for _ in range(3)]
    assert [flight.is_leader for flight in flights] == [True, False, False]
    flights[0].complete(item)
    assert [flight.wait(0) for flight in flights[1:]] == [item, item]


def test_waiting_has_a_limit() -> None:
    table = FlightTable()
    table.join(KEY)
    follower = table.join(KEY)
    with pytest.raises(TimeoutError):
        follower.wait(0.01)
    with pytest.raises(TimeoutError):
        asyncio.run(follower.wait_async(0.01))


def test_late_participant_gets_the_item_until_the_last_one_has_left() -> None:
    table, item = FlightTable(), make_item()
    leader = table.join(KEY)
    leader.complete(item)
    late = table.join(KEY)
    leader.leave()
    assert late.wait(0) is item
    late.leave()
    assert len(table) == 0
    assert table.join(KEY).is_leader


def test_next_participant_leads_when_the_leader_leaves() -> None:
    table, item = FlightTable(), make_item()
    first, second, third = (table.join(KEY) for _ in range(3))
    first.leave()
    first.leave()
    assert second.wait(0) is None
    assert second.is_leader
    assert not first.is_leader
    second.complete(item)
    assert third.wait(0) is item


def test_result_of_a_leader_that_has_left_is_ignored() -> None:
    table = FlightTable()
    first, second = table.join(KEY), table.join(KEY)
    first.leave()
    first.complete(make_item())
    first.fail(RuntimeError("late"))
    assert second.is_leader
    with pytest.raises(InvariantError):
        first.wait(0)


def test_error_of_the_item_reaches_all_as_copies_of_their_own_and_is_not_kept() -> None:
    table = FlightTable()
    leader, second, third = (table.join(KEY) for _ in range(3))
    leader.fail(MediaDecodeError("The file is damaged; send it again."))
    seen = []
    for index, flight in enumerate((second, third)):
        with pytest.raises(MediaDecodeError) as caught:
            flight.wait(0)
        seen.append(caught.value.locate(modality="image", item_index=index))
    assert [error.item_index for error in seen] == [0, 1]
    assert table.join(KEY).is_leader


def test_error_that_cannot_be_copied_reaches_all_as_it_is() -> None:
    class Awkward(Exception):
        def __init__(self, first: int, *, second: int) -> None:
            super().__init__()

    table = FlightTable()
    leader, follower = table.join(KEY), table.join(KEY)
    leader.fail(Awkward(1, second=2))
    with pytest.raises(Awkward):
        follower.wait(0)


def test_only_the_leader_ends_a_flight_and_only_once() -> None:
    table = FlightTable()
    leader, follower = table.join(KEY), table.join(KEY)
    with pytest.raises(InvariantError):
        follower.complete(make_item())
    leader.complete(make_item())
    with pytest.raises(InvariantError):
        leader.complete(make_item())


@pytest.mark.parametrize("is_completed", [True, False], ids=["completed", "left"])
def test_end_of_a_leader_in_another_thread_wakes_who_waits_on_an_event_loop(is_completed: bool) -> None:
    table, item = FlightTable(), make_item()
    leader, follower = table.join(KEY), table.join(KEY)

    async def scenario() -> ProcessedItem | None:
        waiting = asyncio.create_task(follower.wait_async(LIMIT_SECONDS))
        await asyncio.sleep(0)
        assert not waiting.done()
        await asyncio.to_thread(leader.complete, item) if is_completed else await asyncio.to_thread(leader.leave)
        return await waiting

    assert asyncio.run(scenario()) is (item if is_completed else None)


def test_cancelled_waiting_leaves_the_participant_in_the_flight() -> None:
    table, item = FlightTable(), make_item()
    leader, follower = table.join(KEY), table.join(KEY)

    async def scenario() -> ProcessedItem | None:
        waiting = asyncio.create_task(follower.wait_async(LIMIT_SECONDS))
        await asyncio.sleep(0)
        waiting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await waiting
        leader.complete(item)
        return await follower.wait_async(LIMIT_SECONDS)

    assert asyncio.run(scenario()) is item


def test_leaving_ends_a_wait_in_another_thread() -> None:
    table = FlightTable()
    table.join(KEY)
    follower = table.join(KEY)
    with ThreadPoolExecutor(1) as pool:
        waiting = pool.submit(follower.wait, LIMIT_SECONDS)
        follower.leave()
        with pytest.raises(InvariantError):
            waiting.result(LIMIT_SECONDS)


def test_completion_after_the_waiting_loop_has_closed_does_no_harm() -> None:
    table, item = FlightTable(), make_item()
    leader, follower = table.join(KEY), table.join(KEY)
    loop = asyncio.new_event_loop()
    task = loop.create_task(follower.wait_async(LIMIT_SECONDS))
    loop.call_soon(loop.stop)
    loop.run_forever()
    loop.close()
    leader.complete(item)
    assert follower.wait(0) is item
    task.get_coro().close()  # what a stopped loop leaves undone
    task._log_destroy_pending = False  # type: ignore[attr-defined]


@pytest.mark.parametrize("num_leavers", [0, 5, 15])
def test_sixteen_mixed_participants_cause_one_processing_even_if_leaders_leave(num_leavers: int) -> None:
    """Eight wait in threads, eight on an event loop; the first `num_leavers` to lead give up."""
    table, item = FlightTable(), make_item()
    lock, made, left = threading.Lock(), [0], [0]
    gate = threading.Barrier(9)

    def lead(flight: Flight) -> ProcessedItem | None:
        with lock:
            if left[0] < num_leavers:
                left[0] += 1
                flight.leave()
                return None
            made[0] += 1
        flight.complete(item)
        return item

    def in_thread() -> ProcessedItem | None:
        gate.wait(LIMIT_SECONDS)
        flight = table.join(KEY)
        got = None if flight.is_leader else flight.wait(LIMIT_SECONDS)
        return got or lead(flight)

    async def on_loop() -> ProcessedItem | None:
        flight = table.join(KEY)
        await asyncio.sleep(0)
        got = None if flight.is_leader else await flight.wait_async(LIMIT_SECONDS)
        return got or lead(flight)

    async def all_on_loop() -> list[ProcessedItem | None]:
        await asyncio.to_thread(gate.wait, LIMIT_SECONDS)
        return await asyncio.gather(*(on_loop() for _ in range(8)))

    run: Callable[[], list[ProcessedItem | None]] = lambda: asyncio.run(all_on_loop())  # noqa: E731
    with ThreadPoolExecutor(9) as pool:
        threads = [pool.submit(in_thread) for _ in range(8)]
        loop = pool.submit(run)
        results = [future.result(LIMIT_SECONDS) for future in threads] + loop.result(LIMIT_SECONDS)
    assert made[0] == 1
    assert results.count(item) == 16 - num_leavers
