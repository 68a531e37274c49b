"""KV blocks: which are free, who shares them, and what content they can be found by."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence

from inset.errors import InvariantError

__all__ = ["BlockPool"]


class BlockPool:
    """All KV blocks of a worker, by id.

    A block is in use while its reference count is above 0, else it is free. A free block keeps its content, and can be found by its hash,
    until it is given out again; the one freed first goes first, blocks without a hash before all others. ::

        allocate ──> in use ──free──> free, findable by hash ──touch──> in use
           ^                             │
           └─────── oldest first ────────┘

    Attributes:
        num_blocks: All blocks.
    """

    def __init__(self, num_blocks: int) -> None:
        self.num_blocks = num_blocks
        self._ref_counts = [0] * num_blocks
        # The next one to be given out comes last: blocks without a hash at the end, hashed ones in the order of release before them.
        self._free_blank: list[int] = list(range(num_blocks - 1, -1, -1))
        self._free_hashed: dict[int, None] = {}  # in the order of release
        self._hash_of: dict[int, bytes] = {}
        self._block_of: dict[bytes, int] = {}

    @property
    def num_free(self) -> int:
        """Blocks that nobody uses."""
        return len(self._free_blank) + len(self._free_hashed)

    def is_free(self, block_id: int) -> bool:
        """Nobody uses the block."""
        return self._ref_counts[block_id] == 0

    def find(self, block_hash: bytes) -> int | None:
        """Returns the block with this content, in use or free, or None."""
        return self._block_of.get(block_hash)

    def allocate(self, count: int) -> list[int]:
        """Returns blocks of one user each, whose old content is forgotten.

        Raises:
            InvariantError: Fewer are free; ask `num_free` before.
        """
        if count > self.num_free:
            raise InvariantError(f"{count} KV blocks are asked for and {self.num_free} of {self.num_blocks} are free.")
        return [self._allocate_one() for _ in range(count)]

    def _allocate_one(self) -> int:
        if self._free_blank:
            block_id = self._free_blank.pop()
        else:
            block_id = next(iter(self._free_hashed))
            del self._free_hashed[block_id]
            del self._block_of[self._hash_of.pop(block_id)]
        self._ref_counts[block_id] = 1
        return block_id

    def touch(self, block_ids: Iterable[int]) -> None:
        """Adds one user to blocks that were found by their hash."""
        for block_id in block_ids:
            if self._ref_counts[block_id] == 0:
                del self._free_hashed[block_id]
            self._ref_counts[block_id] += 1

    def register(self, block_id: int, block_hash: bytes) -> None:
        """Lets a block in use, full and computed, be found. Where another block has that content already, that one stays the one found."""
        if block_hash not in self._block_of and block_id not in self._hash_of:
            self._hash_of[block_id] = block_hash
            self._block_of[block_hash] = block_id

    def free(self, block_ids: Sequence[int]) -> None:
        """Takes one user from each block of a request, given in the order of positions.

        The last position is released first: the beginning of a prompt is worth more than its end.
        """
        for block_id in reversed(block_ids):
            self._ref_counts[block_id] -= 1
            if self._ref_counts[block_id] == 0:
                if block_id in self._hash_of:
                    self._free_hashed[block_id] = None
                else:
                    self._free_blank.append(block_id)

    def forget_hashes(self) -> None:
        """Makes no block findable any more; blocks in use stay in use."""
        self._free_blank.extend(self._free_hashed)
        self._free_hashed.clear()
        self._hash_of.clear()
        self._block_of.clear()

    def audit(self, users: Iterable[Sequence[int]]) -> None:
        """Checks the books against the block tables of all running requests.

        Raises:
            InvariantError: They do not add up; the numbers are in the message.
        """
        counts = Counter(block_id for table in users for block_id in table)
        wrong = [b for b in range(self.num_blocks) if self._ref_counts[b] != counts[b]]
        free = [*self._free_blank, *self._free_hashed]
        is_split = len(free) == len(set(free)) == self.num_blocks - len(counts) and not counts.keys() & set(free)
        is_paired = {b: h for h, b in self._block_of.items()} == self._hash_of
        if wrong or not is_split or not is_paired:
            raise InvariantError(
                f"The KV blocks do not add up: {len(counts)} in block tables, {len(free)} free, {self.num_blocks} in all; "
                f"{len(wrong)} with a wrong reference count: {wrong[:5]}; {len(self._block_of)} hashes for {len(self._hash_of)} blocks."
            )
