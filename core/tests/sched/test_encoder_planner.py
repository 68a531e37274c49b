from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import dataclass

import pytest

from inset.inputs import MultiModalFeature
from inset.sched.encoder_planner import EncoderPlan, EncoderRoom, plan_encoder_inputs

# Prompt of the cases: 4 text, A at 4 with 6 embeds, B at 10 as `<start> e e <newline> e e <end>`, 3 text, A again at 20, end at 26.
ROWS = ((1, 3), (4, 6))


@dataclass(frozen=True)
class Case:
    claim: str
    start: int
    stop: int
    plan: EncoderPlan
    referenced: Collection[str] = ()
    unreferenced: Collection[str] = ()
    free: int = 100
    budget: int = 100
    is_chunking_items: bool = True


CASES = [
    Case("text alone needs nothing", 0, 4, EncoderPlan(4)),
    Case("all items of the window run once", 0, 26, EncoderPlan(26, (0, 1, 2), (0, 1), 10)),
    Case("an item is made for its first embed", 0, 5, EncoderPlan(5, (0,), (0,), 6)),
    Case("an item that begins at the edge of the window waits", 0, 10, EncoderPlan(10, (0,), (0,), 6)),
    Case("a window over the first separator alone needs nothing", 10, 11, EncoderPlan(1)),
    Case("a window over a separator inside an item needs nothing", 13, 14, EncoderPlan(1)),
    Case("a window over the last separator and text needs nothing", 16, 20, EncoderPlan(4)),
    Case("a window that ends behind the first separator needs nothing of the item", 4, 11, EncoderPlan(7, (0,), (0,), 6)),
    Case("a window that begins inside an item needs the whole item", 7, 10, EncoderPlan(3, (0,), (0,), 6)),
    Case("what is referenced costs nothing", 0, 10, EncoderPlan(10, (0,)), referenced="A", free=0, budget=0),
    Case("what is cached and unreferenced takes room and no budget", 0, 10, EncoderPlan(10, (0,)), unreferenced="A", free=6, budget=0),
    Case("no budget cuts before the item", 0, 26, EncoderPlan(4), budget=5),
    Case("no room cuts before the item", 0, 26, EncoderPlan(4), free=5),
    Case("budget for one of two cuts before the second", 0, 26, EncoderPlan(10, (0,), (0,), 6), budget=9),
    Case("room for one of two cuts before the second", 0, 26, EncoderPlan(10, (0,), (0,), 6), free=9),
    Case("exact room and budget suffice for both", 0, 26, EncoderPlan(26, (0, 1, 2), (0, 1), 10), free=10, budget=10),
    Case("at the item nothing is left of the window", 4, 26, EncoderPlan(0), budget=5),
    Case("inside the item nothing is left of the window", 7, 26, EncoderPlan(0), budget=5),
    Case("a cached entry is not evicted for another of the same plan", 0, 16, EncoderPlan(10, (0,)), unreferenced="A", free=6),
    Case(
        "a later cached item does not count as room for an earlier one twice",
        0,
        16,
        EncoderPlan(10, (0,), (0,), 6),
        unreferenced="B",
        free=6,
    ),
    Case("an uncut item that does not end in the window is left out", 0, 9, EncoderPlan(4), is_chunking_items=False),
    Case("an uncut item that ends at the edge is taken", 0, 10, EncoderPlan(10, (0,), (0,), 6), is_chunking_items=False),
    Case("an uncut item is left out even where only separators would be cut off", 10, 16, EncoderPlan(0), is_chunking_items=False),
    Case("behind a prefix hit the rest of an uncut item is taken whole", 7, 10, EncoderPlan(3, (0,), (0,), 6), is_chunking_items=False),
    Case("behind a prefix hit the rest of an uncut item is not cut again", 7, 9, EncoderPlan(0), is_chunking_items=False),
    Case("an empty window is nothing", 4, 4, EncoderPlan(0)),
]


@pytest.fixture(scope="session")
def items(make_item: Callable[..., MultiModalFeature]) -> list[MultiModalFeature]:
    return [make_item("A", 4, 6), make_item("B", 10, 7, ROWS, item_index=1), make_item("A", 20, 6, item_index=2)]


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.claim.replace(" ", "_"))
def test_planner(case: Case, items: list[MultiModalFeature]) -> None:
    name = {"A": items[0].mm_hash, "B": items[1].mm_hash}
    room = EncoderRoom({name[n] for n in case.referenced}, {name[n] for n in case.unreferenced}, case.free, case.budget)
    assert plan_encoder_inputs(items, case.start, case.stop, room=room, is_chunking_items=case.is_chunking_items) == case.plan


def test_finished_embeddings_take_room_but_no_budget(make_item: Callable[..., MultiModalFeature]) -> None:
    items = [make_item("A", 0, 6, is_embedding=True)]
    assert plan_encoder_inputs(items, 0, 6, room=EncoderRoom((), (), 6, 0)) == EncoderPlan(6, (0,), (0,), 0)
    assert plan_encoder_inputs(items, 0, 6, room=EncoderRoom((), (), 5, 0)) == EncoderPlan(0)


def test_planning_changes_nothing(items: list[MultiModalFeature]) -> None:
    room = EncoderRoom(set(), {items[0].mm_hash}, 20, 20)
    first = plan_encoder_inputs(items, 0, 26, room=room)
    assert plan_encoder_inputs(items, 0, 26, room=room) == first
    assert room == EncoderRoom(set(), {items[0].mm_hash}, 20, 20)
