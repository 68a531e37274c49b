"""Reads the shards that `shards.py` wrote: pictures and clips, mirrored at will, with what is in them."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Generic, TypeVar

import numpy as np
from numpy.typing import NDArray

from clips import STEPS, Actor
from scenes import COLOURS, KINDS, Floats, Pixels, Shape

DIRECTIONS = (None, "left", "right", "up", "down")


@dataclass(frozen=True, slots=True)
class Moment:
    """What a picture shows, or two neighbouring frames of a clip.

    Attributes:
        shapes: The objects from left to right.
        patches: uint8 (rows, columns), as in `scenes.Scene`, numbered as `shapes`.
        directions: For each object one of `DIRECTIONS`.
    """

    shapes: tuple[Shape, ...]
    patches: Pixels
    directions: tuple[str | None, ...]


@dataclass(frozen=True, slots=True)
class Picture:
    """One picture of the pool, perhaps mirrored.

    Attributes:
        pixels: uint8 (height, width, 3).
        shapes: The objects from left to right.
        patches: uint8 (rows, columns), as in `scenes.Scene`, numbered as `shapes`.
    """

    pixels: Pixels
    shapes: tuple[Shape, ...]
    patches: Pixels

    @property
    def frames(self) -> Pixels:
        """The picture as a single frame: uint8 (1, height, width, 3)."""
        return self.pixels[None]

    @property
    def moments(self) -> list[Moment | None]:
        """What the picture shows, as a list of one."""
        return [Moment(self.shapes, self.patches, (None,) * len(self.shapes))]


@dataclass(frozen=True, slots=True)
class Film:
    """One clip of the pool, perhaps mirrored, perhaps run backwards.

    Attributes:
        frames: uint8 (STEPS, height, width, 3).
        actors: The objects.
        patches: uint8 (STEPS, rows, columns): which actor covers a patch, as in `clips.Clip`.
    """

    frames: Pixels
    actors: tuple[Actor, ...]
    patches: Pixels

    @property
    def moments(self) -> list[Moment | None]:
        """What each two neighbouring frames show, None where something changes from one to the other."""
        return [self._moment(step) for step in range(0, STEPS, 2)]

    def _moment(self, step: int) -> Moment | None:
        for actor in self.actors:
            if step + 1 in (actor.turns_at, actor.appears_at, actor.disappears_at):
                return None
        there = [(actor.at(step + 0.5), number, actor.direction) for number, actor in enumerate(self.actors, 1) if actor.is_there(step)]
        there.sort(key=lambda found: found[0].x)
        first, second = self.patches[step : step + 2]
        on_patch = np.where((first == second) | (second == 0), first, np.where(first == 0, second, 255))
        patches = np.where(on_patch == 255, 255, 0).astype(np.uint8)
        for place, (_, number, _) in enumerate(there, 1):
            patches[on_patch == number] = place
        return Moment(tuple(shape for shape, _, _ in there), patches, tuple(direction for _, _, direction in there))


Item = Picture | Film
T = TypeVar("T", Picture, Film)


class Pool(ABC, Generic[T]):
    """All pictures, or clips, of one split that have been drawn so far; `refresh` takes in new shards."""

    def __init__(self, folder: Path, what: str, split: str) -> None:
        self._folder, self._pattern = folder, f"{what}-{split}-*.npz"
        self._shards: list[tuple[NDArray[np.uint8], NDArray[np.uint8], Floats]] = []
        self._known: set[Path] = set()
        self.refresh()

    def refresh(self) -> None:
        """Loads the shards that were finished since the last call."""
        for path in sorted(self._folder.glob(self._pattern)):
            if path not in self._known and ".part" not in path.name:
                self._known.add(path)
                with np.load(path) as shard:
                    pixels, patches, table = (shard[name] for name in shard.files)
                self._shards.append((pixels, patches, table))

    def __len__(self) -> int:
        return sum(len(table) for _, _, table in self._shards)

    def draw(self, rng: np.random.Generator) -> T:
        """Returns a random item, mirrored at random."""
        return self.get(int(rng.integers(len(self))), *(bool(rng.integers(2)) for _ in range(3)))

    def get(self, index: int, mirror_x: bool = False, mirror_y: bool = False, reverse: bool = False) -> T:
        """Returns one item, mirrored, or run backwards, as asked; its labels follow."""
        per_shard = len(self._shards[0][2])
        pixels, patches, table = (part[index % per_shard] for part in self._shards[index // per_shard])
        item = self._read(pixels, patches, table)
        if mirror_x:
            item = self._mirror_x(item)
        if mirror_y:
            item = self._mirror_y(item)
        return self._reverse(item) if reverse else item

    @abstractmethod
    def _read(self, pixels: Pixels, patches: Pixels, table: Floats) -> T: ...

    @abstractmethod
    def _mirror_x(self, item: T) -> T: ...

    @abstractmethod
    def _mirror_y(self, item: T) -> T: ...

    def _reverse(self, item: T) -> T:
        return item


class Pictures(Pool[Picture]):
    """Pictures: `squares` of one size, or `pictures` of many."""

    def _read(self, pixels: Pixels, patches: Pixels, table: Floats) -> Picture:
        rows = [(int(k), int(c), float(x), float(y)) for k, c, x, y in table if k >= 0]
        return Picture(pixels, tuple(Shape(KINDS[k], COLOURS[c], x, y) for k, c, x, y in rows), patches)

    def _mirror_x(self, item: Picture) -> Picture:
        shapes, patches = tuple(replace(shape, x=1 - shape.x) for shape in item.shapes[::-1]), item.patches[:, ::-1]
        patches = np.where((patches > 0) & (patches <= len(shapes)), len(shapes) + 1 - patches, patches)
        return Picture(item.pixels[:, ::-1], shapes, patches)

    def _mirror_y(self, item: Picture) -> Picture:
        return Picture(item.pixels[::-1], tuple(replace(shape, y=1 - shape.y) for shape in item.shapes), item.patches[::-1])


class Films(Pool[Film]):
    """Clips."""

    def _read(self, pixels: Pixels, patches: Pixels, table: Floats) -> Film:
        actors = []
        for kind, first, last, turns, appears, disappears, *path in table.tolist():
            if kind >= 0:
                colours = COLOURS[int(first)], COLOURS[int(last)]
                actors.append(Actor(KINDS[int(kind)], colours, turns, appears, disappears, ((path[0], path[1]), (path[2], path[3]))))
        return Film(pixels, tuple(actors), patches)

    def _mirror_x(self, item: Film) -> Film:
        actors = tuple(replace(a, path=((1 - a.path[0][0], a.path[0][1]), (1 - a.path[1][0], a.path[1][1]))) for a in item.actors)
        return Film(item.frames[:, :, ::-1], actors, item.patches[:, :, ::-1])

    def _mirror_y(self, item: Film) -> Film:
        actors = tuple(replace(a, path=((a.path[0][0], 1 - a.path[0][1]), (a.path[1][0], 1 - a.path[1][1]))) for a in item.actors)
        return Film(item.frames[:, ::-1], actors, item.patches[:, ::-1])

    def _reverse(self, item: Film) -> Film:
        return Film(item.frames[::-1], tuple(_backwards(actor) for actor in item.actors), item.patches[::-1])


def _backwards(actor: Actor) -> Actor:
    turns = actor.turns_at < STEPS
    return replace(
        actor,
        colours=actor.colours[::-1] if turns else actor.colours,
        turns_at=STEPS - actor.turns_at if turns else STEPS,
        appears_at=STEPS - actor.disappears_at,
        disappears_at=STEPS - actor.appears_at,
        path=actor.path[::-1],
    )
