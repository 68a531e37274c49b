from __future__ import annotations

import pytest

from inset.errors import InvariantError
from inset.sched.block_pool import BlockPool


@pytest.fixture
def pool() -> BlockPool:
    return BlockPool(4)


def test_a_new_pool_gives_out_every_block_once(pool: BlockPool) -> None:
    assert sorted(pool.allocate(4)) == [0, 1, 2, 3]
    assert pool.num_free == 0


def test_asking_for_more_than_is_free_changes_nothing(pool: BlockPool) -> None:
    pool.allocate(3)
    with pytest.raises(InvariantError, match="2 KV blocks are asked for and 1 of 4"):
        pool.allocate(2)
    assert pool.num_free == 1


def test_a_free_block_is_found_until_it_is_given_out_again(pool: BlockPool) -> None:
    (block,) = pool.allocate(1)
    pool.register(block, b"h")
    pool.free([block])
    assert pool.find(b"h") == block
    assert pool.is_free(block)
    pool.allocate(4)
    assert pool.find(b"h") is None


def test_blank_blocks_go_before_hashed_ones_and_the_end_of_a_prompt_before_its_beginning(pool: BlockPool) -> None:
    first, second, blank = pool.allocate(3)
    pool.register(first, b"1")
    pool.register(second, b"2")
    pool.free([first, second, blank])
    assert pool.allocate(3)[-1] == second
    assert pool.find(b"1") == first


def test_the_block_freed_first_goes_first(pool: BlockPool) -> None:
    blocks = pool.allocate(4)
    for block in blocks:
        pool.register(block, bytes([block]))
    order = [blocks[2], blocks[0], blocks[3], blocks[1]]
    for block in order:
        pool.free([block])
    pool.touch([blocks[0]])
    pool.free([blocks[0]])
    assert pool.allocate(4) == [blocks[2], blocks[3], blocks[1], blocks[0]]


def test_a_shared_block_is_free_when_its_last_user_has_gone(pool: BlockPool) -> None:
    (block,) = pool.allocate(1)
    pool.register(block, b"h")
    pool.touch([block])
    pool.free([block])
    assert not pool.is_free(block)
    pool.free([block])
    assert pool.is_free(block)


def test_the_first_block_with_a_content_stays_the_one_found(pool: BlockPool) -> None:
    first, second = pool.allocate(2)
    pool.register(first, b"h")
    pool.register(second, b"h")
    assert pool.find(b"h") == first
    pool.free([first])
    pool.free([second])
    pool.audit([])


def test_forgotten_hashes_are_not_found_and_their_blocks_are_still_there(pool: BlockPool) -> None:
    used, free = pool.allocate(2)
    pool.register(used, b"u")
    pool.register(free, b"f")
    pool.free([free])
    pool.forget_hashes()
    assert (pool.find(b"u"), pool.find(b"f")) == (None, None)
    pool.audit([[used]])
    assert len(pool.allocate(3)) == 3


def test_audit_names_blocks_with_a_wrong_reference_count(pool: BlockPool) -> None:
    table = pool.allocate(2)
    pool.audit([table])
    with pytest.raises(InvariantError, match="2 with a wrong reference count"):
        pool.audit([])
