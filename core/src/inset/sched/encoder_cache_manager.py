"""Which encoder outputs the worker holds, and who needs them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from inset.errors import InvariantError
from inset.inputs import MultiModalFeature
from inset.sched.encoder_planner import EncoderPlan, EncoderRoom

__all__ = ["EncoderCacheManager"]


@dataclass(slots=True)
class _Entry:
    num_embeds: int
    holders: set[tuple[str, int]] = field(default_factory=set)


class EncoderCacheManager:
    """Books of the encoder cache, in embeds; the tensors are the worker's.

    An entry exists from the moment its encoder run is scheduled. It is referenced as long as a request has positions of the item ahead of
    it; after that it stays until its room is needed, the one released first leaving first. An entry that leaves is named once in
    `take_freed`, and the worker drops it before the encoders of that step run, so that the same item may be made again in that very step.

    Attributes:
        size: Embeds that fit.
        num_used_embeds: Embeds of all entries, referenced or not.
        num_hits: Items that were needed and found, since the start.
    """

    def __init__(self, size: int) -> None:
        self.size = size
        self.num_used_embeds = 0
        self.num_hits = 0
        self._referenced: dict[bytes, _Entry] = {}
        self._unreferenced: dict[bytes, _Entry] = {}  # in the order of release
        self._num_referenced_embeds = 0
        self._held: dict[str, dict[int, bytes]] = {}
        self._freed: list[bytes] = []

    def room(self, compute_budget: int) -> EncoderRoom:
        """Returns what is left, as the planner wants it; views, valid until the next change."""
        return EncoderRoom(self._referenced.keys(), self._unreferenced.keys(), self.size - self._num_referenced_embeds, compute_budget)

    def closed_room(self) -> EncoderRoom:
        """Returns the room of a running request behind one that waits for room: it may use what is referenced, and nothing else."""
        return EncoderRoom(self._referenced.keys(), (), 0, 0)

    def take(self, request_id: str, items: Sequence[MultiModalFeature], plan: EncoderPlan) -> None:
        """References every item that a plan needs and makes entries for those that it runs, evicting unreferenced ones.

        Cached items are referenced before anything is evicted: an eviction must not hit what the same plan uses.
        """
        reused = [index for index in plan.needed if index not in plan.run]
        held = self._held.get(request_id, {})
        self.num_hits += sum(index not in held for index in reused)
        for index in reused:
            if items[index].mm_hash in self._referenced or items[index].mm_hash in self._unreferenced:
                self._reference(request_id, index, items[index].mm_hash)
        for index in plan.run:
            self._allocate(items[index].mm_hash, items[index].num_embeds)
            self._reference(request_id, index, items[index].mm_hash)
        for index in reused:
            self._reference(request_id, index, items[index].mm_hash)

    def _allocate(self, mm_hash: bytes, num_embeds: int) -> None:
        while self.num_used_embeds + num_embeds > self.size:
            if not self._unreferenced:
                raise InvariantError(f"No room for {num_embeds} embeds: {self._num_referenced_embeds} of {self.size} are referenced.")
            self.drop(next(iter(self._unreferenced)))
        self._unreferenced[mm_hash] = _Entry(num_embeds)
        self.num_used_embeds += num_embeds

    def _reference(self, request_id: str, index: int, mm_hash: bytes) -> None:
        entry = self._unreferenced.pop(mm_hash, None)
        if entry is None:
            entry = self._referenced[mm_hash]
        else:
            self._referenced[mm_hash] = entry
            self._num_referenced_embeds += entry.num_embeds
        entry.holders.add((request_id, index))
        self._held.setdefault(request_id, {})[index] = mm_hash

    def release_passed(self, request_id: str, items: Sequence[MultiModalFeature], num_computed_tokens: int) -> None:
        """Ends a request's references to the items whose last embed lies before `num_computed_tokens`."""
        held = self._held.get(request_id)
        if held is None:
            return
        for index in [i for i in held if items[i].placeholder.offset + items[i].placeholder.runs[-1][1] <= num_computed_tokens]:
            self._release(request_id, index)

    def release_all(self, request_id: str) -> None:
        """Ends all references of a request; without any it changes nothing."""
        for index in list(self._held.get(request_id, ())):
            self._release(request_id, index)

    def _release(self, request_id: str, index: int) -> None:
        held = self._held[request_id]
        mm_hash = held.pop(index)
        if not held:
            del self._held[request_id]
        entry = self._referenced[mm_hash]
        entry.holders.remove((request_id, index))
        if not entry.holders:
            self._unreferenced[mm_hash] = self._referenced.pop(mm_hash)
            self._num_referenced_embeds -= entry.num_embeds

    def drop(self, mm_hash: bytes) -> None:
        """Forgets an entry, referenced or not, and has the worker drop it; a request that still needs it has it made again."""
        referenced = self._referenced.get(mm_hash)
        for request_id, index in list(referenced.holders) if referenced is not None else ():
            self._release(request_id, index)
        entry = self._unreferenced.pop(mm_hash, None)
        if entry is not None:
            self.num_used_embeds -= entry.num_embeds
            self._freed.append(mm_hash)

    def reset(self) -> None:
        """Drops all entries."""
        for mm_hash in [*self._referenced, *self._unreferenced]:
            self.drop(mm_hash)

    @property
    def has_freed(self) -> bool:
        """The worker has not been told yet of an entry that left."""
        return bool(self._freed)

    def take_freed(self) -> tuple[bytes, ...]:
        """Returns the hashes of the entries that have left since the last call."""
        freed = tuple(self._freed)
        self._freed.clear()
        return freed

    def audit(self, request_ids: Sequence[str]) -> None:
        """Checks that the books add up and that nobody but these requests holds anything.

        Raises:
            InvariantError: They do not; the numbers are in the message.
        """
        entries = [*self._referenced.values(), *self._unreferenced.values()]
        used = sum(entry.num_embeds for entry in entries)
        referenced = sum(entry.num_embeds for entry in self._referenced.values())
        holders = sum(len(entry.holders) for entry in entries)
        held = sum(len(indices) for indices in self._held.values())
        strangers = sorted(set(self._held) - set(request_ids))
        if used != self.num_used_embeds or used > self.size or referenced != self._num_referenced_embeds or holders != held or strangers:
            raise InvariantError(
                f"The encoder cache does not add up: {used} embeds in entries, {self.num_used_embeds} in the books, {self.size} at most; "
                f"{referenced} referenced, {self._num_referenced_embeds} in the books; {holders} references, {held} in the books; "
                f"{len(strangers)} holders that do not run: {strangers[:5]}."
            )
