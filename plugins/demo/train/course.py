"""What is asked in training: which pictures, which kinds of question, and when it gets harder."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass

import numpy as np

from clip_questions import KINDS_FOR_CLIPS
from data import Picture, Pictures
from questions import KINDS_FOR_TWO, KINDS_OF_QUESTION, MOST

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


Content = tuple[tuple[str, str], ...]
"""Kind and colour of each object, sorted."""


class Pairs:
    """Finds pictures with the same or nearly the same content."""

    def __init__(self, pool: Pictures) -> None:
        self._pool, self._contents = pool, [_content(pool.get(index)) for index in range(len(pool))]
        self._same: dict[Content, list[int]] = defaultdict(list)
        self._near: dict[tuple[Content, int, str], list[int]] = defaultdict(list)
        for index, content in enumerate(self._contents):
            self._same[content].append(index)
            for without in _without_one(content):
                self._near[without].append(index)
        self._repeated: dict[int, list[int]] = defaultdict(list)
        for content, among in self._same.items():
            self._repeated[len(content)] += among if len(among) > 1 else []

    def draw(self, rng: np.random.Generator, most: int) -> tuple[Picture, Picture]:
        """Returns two pictures of at most `most` objects: the same content, one thing changed, or anything."""
        one, style, among = self._any(rng, most), rng.random(), []
        content = self._contents[one]
        if style <= 0.4 and self._repeated[len(content)]:
            one = _choose(rng, self._repeated[len(content)])
            among = [index for index in self._same[self._contents[one]] if index != one]
        elif style <= 0.7 and content:
            ways = _without_one(content)
            among = [index for index in self._near[ways[int(rng.integers(len(ways)))]] if self._contents[index] != content]
        other = _choose(rng, among) if among else self._any(rng, most)
        return self._get(rng, one), self._get(rng, other)

    def _any(self, rng: np.random.Generator, most: int) -> int:
        index = int(rng.integers(len(self._contents)))
        while len(self._contents[index]) > most:
            index = int(rng.integers(len(self._contents)))
        return index

    def _get(self, rng: np.random.Generator, index: int) -> Picture:
        return self._pool.get(index, mirror_x=bool(rng.integers(2)), mirror_y=bool(rng.integers(2)))


def _choose(rng: np.random.Generator, among: list[int]) -> int:
    return among[int(rng.integers(len(among)))]


def _content(picture: Picture) -> Content:
    return tuple(sorted((shape.kind, shape.colour) for shape in picture.shapes))


def _without_one(content: Content) -> list[tuple[Content, int, str]]:
    """Returns each way to forget the kind, or the colour, of one object: the others, which of the two is left, and its value."""
    return [((*content[:i], *content[i + 1 :]), field, thing[field]) for i, thing in enumerate(content) for field in (0, 1)]


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
