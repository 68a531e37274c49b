"""Puts batches of questions together: about one picture each, about two, or about a clip."""

from __future__ import annotations

import numpy as np

from clip_questions import ask_about_clip
from course import LEVELS, Mix, Pairs
from data import Film, Picture
from families.base import Family
from packing import Batch, Encode, Row, collate, row_about_one, row_about_two, row_of_chat, row_of_turns
from questions import KINDS_FOR_TWO, Question, ask, ask_two
from vision import Pools

QUESTIONS, TWO_QUESTIONS, CLIP_QUESTIONS = 9, 7, 7


class Lessons:
    """Draws batches from the pools of one split."""

    def __init__(self, family: Family, pools: Pools, encode: Encode, rows: int) -> None:
        self.family, self.pools, self.encode, self.rows = family, pools, encode, rows
        self.pairs = Pairs(pools.pictures)

    def draw(self, rng: np.random.Generator, mix: Mix) -> Batch:
        """Returns a batch of the sort, and as hard, as the course says."""
        level, sort = LEVELS[mix.level], rng.random()
        if sort < level.share_of_two:
            return self.about_two(rng, mix)
        if self.family.video and sort < level.share_of_two + level.share_of_clips:
            return self.about_clips(rng, mix)
        return self.about_one(rng, mix)

    def about_one(self, rng: np.random.Generator, mix: Mix) -> Batch:
        """Returns a batch of rows about one picture each."""
        rows: list[Row] = [row_of_chat(rng, self.encode, self.family.place)]
        while len(rows) < self.rows:
            picture = self.pools.pictures.draw(rng)
            if len(picture.shapes) <= LEVELS[mix.level].most:
                questions = _about_picture(rng, picture, mix, QUESTIONS)
                rows.append(row_about_one(rng, picture, questions, self.encode, self.family.place))
        return collate(rows)

    def about_two(self, rng: np.random.Generator, mix: Mix) -> Batch:
        """Returns a batch of rows about two pictures each."""
        rows: list[Row] = []
        while len(rows) < self.rows * 7 // 10:
            pictures = self.pairs.draw(rng, LEVELS[mix.level].most)
            if rng.random() < 0.1:
                asked = (_about_picture(rng, pictures[0], mix, 1), _about_picture(rng, pictures[1], mix, TWO_QUESTIONS))
                rows.append(row_of_turns(rng, pictures, asked, self.encode, self.family.place))
                continue
            shapes = pictures[0].shapes, pictures[1].shapes
            found = [ask_two(rng, *shapes, kind) for kind in mix.kinds(rng, KINDS_FOR_TWO, TWO_QUESTIONS + 1)]
            rows.append(row_about_two(rng, pictures, [q for q in found if q is not None], self.encode, self.family.place))
        return collate(rows)

    def about_clips(self, rng: np.random.Generator, mix: Mix) -> Batch:
        """Returns a batch of rows about one clip each."""
        assert self.pools.films is not None, "the family sees clips"
        rows: list[Row] = []
        while len(rows) < self.rows * 7 // 10:
            film = self.pools.films.draw(rng)
            questions = _about_film(rng, film, mix)
            if len(film.actors) <= LEVELS[mix.level].most and questions:
                rows.append(row_about_one(rng, film, questions, self.encode, self.family.place))
        return collate(rows)


def _about_picture(rng: np.random.Generator, picture: Picture, mix: Mix, count: int) -> list[Question]:
    """Returns up to `count` questions about one picture, and at least one."""
    found = [ask(rng, picture.shapes, kind) for kind in mix.kinds(rng, LEVELS[mix.level].kinds, count + 2)]
    known = [question for question in found if question is not None][:count]
    counting = ask(rng, picture.shapes, "counting")
    return known or ([] if counting is None else [counting])


def _about_film(rng: np.random.Generator, film: Film, mix: Mix) -> list[Question]:
    """Returns questions about one clip; one that is asked twice is left out once."""
    found = [ask_about_clip(rng, film.actors, kind) for kind in mix.kinds(rng, LEVELS[mix.level].clip_kinds, 2 * CLIP_QUESTIONS)]
    return list(dict.fromkeys(question for question in found if question is not None))[:CLIP_QUESTIONS]
