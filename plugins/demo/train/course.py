"""What is asked in training: which pictures, which kinds of question, and when it gets harder."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, field

import numpy as np

from clip_questions import KINDS_FOR_CLIPS
from data import Picture, Pictures
from questions import KINDS_FOR_TWO, KINDS_OF_QUESTION, MOST
from scenes import COLOURS, KINDS

MASTERED = 0.2
"""The course goes on to the next level when no kind of question goes wrong more often than this."""


@dataclass(frozen=True, slots=True)
class Level:
    """One level of the course.

    Attributes:
        most: Pictures have at most so many objects.
        kinds: The kinds of question about one picture.
        clip_kinds: The kinds of question about a clip.
        share_of_two: The share of batches about two pictures.
        share_of_clips: The share of batches about clips, where the family sees them.
        latest: The level ends at the latest when this part of the training lies behind.
    """

    most: int
    kinds: tuple[str, ...]
    clip_kinds: tuple[str, ...]
    share_of_two: float
    share_of_clips: float
    latest: float


LEVELS = (
    Level(1, ("naming", "colour", "counting", "existence"), ("scene", "direction", "change"), 0.0, 0.35, 0.2),
    Level(2, KINDS_OF_QUESTION, KINDS_FOR_CLIPS, 0.3, 0.45, 0.42),
    Level(MOST, KINDS_OF_QUESTION, KINDS_FOR_CLIPS, 0.3, 0.4, 1.0),
)


@dataclass(slots=True)
class Pairs:
    """Finds pictures with the same or nearly the same content."""

    pool: Pictures
    by_content: dict[tuple[tuple[str, str], ...], list[int]] = field(default_factory=lambda: defaultdict(list))
    known: int = 0

    def refresh(self) -> None:
        """Takes in the pictures that the pool has gained."""
        for index in range(self.known, len(self.pool)):
            self.by_content[_content(self.pool.get(index))].append(index)
        self.known = len(self.pool)

    def draw(self, rng: np.random.Generator, most: int) -> tuple[Picture, Picture]:
        """Returns two pictures of at most `most` objects: the same content, one thing changed, or anything."""
        first = self._draw(rng, most)
        style = rng.random()
        content = list(_content(first))
        if style > 0.7 or (style > 0.4 and not content):
            return first, self._draw(rng, most)
        if style > 0.4:
            i = int(rng.integers(len(content)))
            kind, colour = content[i]
            content[i] = (_other(rng, KINDS, kind), colour) if rng.random() < 0.5 else (kind, _other(rng, COLOURS, colour))
        among = self.by_content.get(tuple(sorted(content)))
        if not among:
            return first, self._draw(rng, most)
        index = among[int(rng.integers(len(among)))]
        return first, self.pool.get(index, mirror_x=bool(rng.integers(2)), mirror_y=bool(rng.integers(2)))

    def _draw(self, rng: np.random.Generator, most: int) -> Picture:
        picture = self.pool.draw(rng)
        while len(picture.shapes) > most:
            picture = self.pool.draw(rng)
        return picture


def _content(picture: Picture) -> tuple[tuple[str, str], ...]:
    return tuple(sorted((shape.kind, shape.colour) for shape in picture.shapes))


def _other(rng: np.random.Generator, values: tuple[str, ...], value: str) -> str:
    return str(rng.choice([v for v in values if v != value]))


class Mix:
    """How often each kind of question is asked: the more, the more often it goes wrong; and how hard the pictures are."""

    def __init__(self, errors: dict[str, float] | None = None, level: int = 0) -> None:
        self.errors = errors or dict.fromkeys((*KINDS_OF_QUESTION, *KINDS_FOR_TWO, *KINDS_FOR_CLIPS, "chat"), 1.0)
        self.level = level

    def kinds(self, rng: np.random.Generator, among: tuple[str, ...], count: int) -> list[str]:
        """Draws kinds of question."""
        weights = np.array([0.02 + self.errors[kind] ** 2 for kind in among])
        return [str(kind) for kind in rng.choice(among, count, p=weights / weights.sum())]

    def learn(self, kinds: list[str], right: list[bool], along: float) -> None:
        """Takes in which questions of a batch were answered right, and goes on to the next level when it is time."""
        seen: dict[str, list[bool]] = defaultdict(list)
        for kind, ok in zip(kinds, right, strict=True):
            seen[kind].append(ok)
        for kind, oks in seen.items():
            self.errors[kind] += 0.05 * (1 - sum(oks) / len(oks) - self.errors[kind])
        now = LEVELS[self.level]
        mastered = all(self.errors[kind] < MASTERED for kind in now.kinds)
        if self.level + 1 < len(LEVELS) and (mastered or along >= now.latest):
            self.level += 1
            self.errors = {kind: max(error, 2 * MASTERED) for kind, error in self.errors.items()}
