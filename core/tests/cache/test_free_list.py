"""The free list of a segment."""

from hypothesis import given
from hypothesis import strategies as st

from inset.cache.free_list import FreeList


def test_gaps_grow_together_on_both_sides() -> None:
    free = FreeList(100)
    assert [free.allocate(size) for size in (40, 30, 30)] == [0, 40, 70]
    assert free.allocate(1) is None
    free.free(0, 40)
    free.free(70, 30)
    assert free.gaps == [(0, 40), (70, 30)]
    free.free(40, 30)
    assert (free.gaps, free.num_used_bytes) == ([(0, 100)], 0)


def test_lowest_gap_that_is_large_enough_is_taken() -> None:
    free = FreeList(100)
    for size in (10, 10, 30, 10):
        free.allocate(size)
    free.free(20, 30)
    free.free(0, 10)
    assert free.allocate(20) == 20
    assert free.allocate(10) == 0


def test_segment_without_bytes_holds_nothing() -> None:
    free = FreeList(0)
    assert free.allocate(1) is None
    assert not free.could_hold(1, [])


def test_could_hold_looks_between_the_fixed_spans() -> None:
    free = FreeList(100)
    assert free.could_hold(100, [])
    assert free.could_hold(50, [(0, 10), (60, 40)])
    assert not free.could_hold(51, [(60, 40), (0, 10)])
    assert free.could_hold(40, [(20, 40)])


@given(st.lists(st.one_of(st.integers(1, 40), st.integers(-10, -1)), max_size=80))
def test_spans_never_overlap_and_nothing_is_lost(steps: list[int]) -> None:
    """A positive number allocates that many bytes, a negative one frees one of the spans."""
    free, spans = FreeList(100), dict[int, int]()
    for step in steps:
        if step > 0:
            fits = any(size >= step for _, size in free.gaps)
            offset = free.allocate(step)
            assert (offset is not None) == fits
            if offset is not None:
                spans[offset] = step
        elif spans:
            offset = sorted(spans)[step % len(spans)]
            free.free(offset, spans.pop(offset))
        everything = sorted([*free.gaps, *spans.items()])
        assert [offset for offset, _ in everything] == [sum(size for _, size in everything[:i]) for i in range(len(everything))]
        assert sum(size for _, size in everything) == 100
        assert free.num_used_bytes == sum(spans.values())
        assert all(first[0] + first[1] < second[0] for first, second in zip(free.gaps, free.gaps[1:], strict=False))
