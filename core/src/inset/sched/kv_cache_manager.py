"""Gives requests their KV blocks, and finds the blocks of equal prompt beginnings."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from inset.sched.block_hash import hash_block
from inset.sched.block_pool import BlockPool
from inset.sched.request import Request

__all__ = ["KVCacheManager"]


class KVCacheManager:
    """Block tables of all running requests.

    Positions of a request, block by block; a shared block is full and computed, so nobody writes to it again::

        | found by hash, shared | registered | computed, not full or not registered | to be computed |
        0        read only              num_registered_blocks            num_computed_tokens      num_tokens

    All of them belong to the request until `free`.

    Attributes:
        pool: The blocks.
        block_size: Positions in one block.
        num_prefix_queries: Positions that were looked for when requests were taken in, since the start.
        num_prefix_hits: Those that were found.
    """

    def __init__(self, *, num_blocks: int, block_size: int, enable_prefix_caching: bool) -> None:
        self.pool = BlockPool(num_blocks)
        self.block_size = block_size
        self.num_prefix_queries = 0
        self.num_prefix_hits = 0
        self._is_caching = enable_prefix_caching

    @property
    def num_used_blocks(self) -> int:
        """Blocks in use."""
        return self.pool.num_blocks - self.pool.num_free

    def find_prefix(self, request: Request) -> list[int]:
        """Returns the longest run of computed blocks that a request can begin with; takes nothing.

        At least its last position is left to compute, because the next token comes from there: where all full blocks are known, the last
        of them is computed again into a block of its own, as nobody may write to a shared one.
        """
        found: list[int] = []
        if not self._is_caching or not request.is_cacheable:
            return found
        for index in range((request.num_tokens - 1) // self.block_size):
            block_id = self.pool.find(self._block_hash(request, index))
            if block_id is None:
                break
            found.append(block_id)
        return found

    def has_room(self, request: Request, prefix: Sequence[int], *, num_reserved: int) -> bool:
        """Whether all tokens that a request has by now find a block, with `num_reserved` blocks left over.

        Args:
            request: The request to take in.
            prefix: What `find_prefix` found.
            num_reserved: Free blocks to leave, so that running requests can grow and a newcomer, or one that has just been preempted, is
                not thrown out at once.
        """
        num_new = self._num_blocks_for(request) - len(prefix)
        num_revived = sum(self.pool.is_free(block_id) for block_id in prefix)
        return num_new + num_revived + num_reserved <= self.pool.num_free

    def admit(self, request: Request, prefix: Sequence[int]) -> None:
        """Gives a request the found blocks and new ones for the rest of its tokens; ask `has_room` before."""
        self.pool.touch(prefix)
        request.block_ids[:] = [*prefix, *self.pool.allocate(self._num_blocks_for(request) - len(prefix))]
        request.num_computed_tokens = len(prefix) * self.block_size
        request.num_registered_blocks = len(prefix)
        self.num_prefix_queries += request.num_tokens
        self.num_prefix_hits += request.num_computed_tokens

    def grow(self, request: Request) -> tuple[int, ...] | None:
        """Gives a running request the blocks that its newest token needs: returns the new ones, or None where too few are free."""
        missing = self._num_blocks_for(request) - len(request.block_ids)
        if missing <= 0:
            return ()
        if missing > self.pool.num_free:
            return None
        new = self.pool.allocate(missing)
        request.block_ids += new
        return tuple(new)

    def register_computed(self, request: Request) -> None:
        """Lets the full blocks that a step has computed be found by others."""
        if not self._is_caching or not request.is_cacheable:
            return
        for index in range(request.num_registered_blocks, request.num_computed_tokens // self.block_size):
            self.pool.register(request.block_ids[index], self._block_hash(request, index))
            request.num_registered_blocks = index + 1

    def free(self, request: Request) -> None:
        """Takes all blocks from a request; without any it changes nothing."""
        self.pool.free(request.block_ids)
        request.block_ids.clear()

    def reset_prefix_cache(self, running: Iterable[Request]) -> None:
        """Makes no block findable; nothing that the running requests have or will have can be found afterwards either."""
        self.pool.forget_hashes()
        for request in running:
            request.is_cacheable = False

    def _num_blocks_for(self, request: Request) -> int:
        return -(-len(request.token_ids) // self.block_size)

    def _block_hash(self, request: Request, index: int) -> bytes:
        hashes, size = request.block_hashes, self.block_size
        while len(hashes) <= index:
            start = len(hashes) * size
            parent = hashes[-1] if hashes else request.root_hash
            hashes.append(hash_block(parent, request.token_ids[start : start + size], start, request.items))
        return hashes[index]
