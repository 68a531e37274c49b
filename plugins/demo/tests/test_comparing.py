"""What teaches comparing: pairs of pictures that show the same, or nearly the same, and what a token knows of what came before it."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray

import shards
from clips import STEPS, Actor
from course import Pairs
from data import Film, Picture, Pictures
from families import FAMILIES
from news import NEWS, news_labels
from questions import ask
from scenes import COLOURS, KINDS, Shape

Content = tuple[tuple[str, str], ...]
STILL = ((0.25, 0.5), (0.25, 0.5))
GRID = (4, 4)


def _content(picture: Picture) -> Content:
    return tuple(sorted((shape.kind, shape.colour) for shape in picture.shapes))


@pytest.fixture
def drawn(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Pictures:
    monkeypatch.setattr(shards, "SHARD", 40)
    shards.write_shard(tmp_path, "squares", "train", 0)
    return Pictures(tmp_path, "squares", "train")


def test_second_half_of_a_shard_shows_what_the_first_does_drawn_anew(drawn: Pictures) -> None:
    for number in range(20):
        one, other = drawn.get(number), drawn.get(number + 20)
        assert _content(one) == _content(other)
        assert one.pixels.tobytes() != other.pixels.tobytes()


def test_pairs_show_the_same_one_thing_changed_or_anything(tmp_path: Path) -> None:
    contents: list[Content] = [(("circle", "red"),), (("circle", "red"),), (("circle", "blue"),), (("heart", "red"), ("star", "black")), ()]
    _write(tmp_path, contents)
    pairs, rng = Pairs(Pictures(tmp_path, "squares", "train")), np.random.default_rng(0)
    drawn: Counter[tuple[Content, Content]] = Counter()
    for _ in range(400):
        one, other = (_content(picture) for picture in pairs.draw(rng, 1))
        drawn[one, other] += 1
    assert not any(len(content) > 1 for pair in drawn for content in pair)
    same, near = drawn[contents[0], contents[0]], drawn[contents[0], contents[2]] + drawn[contents[2], contents[0]]
    assert same > 80
    assert near > 80


def test_picture_is_not_paired_with_itself_as_the_same(tmp_path: Path) -> None:
    _write(tmp_path, [(("circle", "red"),), (("circle", "red"),)])
    pool = Pictures(tmp_path, "squares", "train")
    pairs, rng = Pairs(pool), np.random.default_rng(0)
    found = [pairs.draw(rng, 1) for _ in range(300)]
    alone = sum(one.pixels.max() == other.pixels.max() for one, other in found)
    assert alone < 0.45 * len(found)


def _write(folder: Path, contents: list[Content]) -> None:
    """Writes a shard of pictures, each of one shade of grey, its number."""
    table = np.full((len(contents), 4, 4), -1, np.float32)
    for i, content in enumerate(contents):
        for j, (kind, colour) in enumerate(content):
            table[i, j] = (KINDS.index(kind), COLOURS.index(colour), 0.2 + 0.3 * j, 0.5)
    pixels = np.broadcast_to(np.arange(len(contents), dtype=np.uint8)[:, None, None, None], (len(contents), 112, 112, 3))
    np.savez(folder / "squares-train-0000.npz", pixels=pixels, patches=np.zeros((len(contents), 8, 8), np.uint8), table=table)


def test_blue_circle_is_asked_for_beside_a_red_circle_and_a_blue_square() -> None:
    shapes = (Shape("circle", "red", 0.2, 0.5), Shape("square", "blue", 0.8, 0.5))
    asked = [ask(np.random.default_rng(seed), shapes, "existence") for seed in range(300)]
    crossed = {q.answer for q in asked if q is not None and ("blue circle" in q.text or "red square" in q.text)}
    assert crossed == {"no"}


def _film(actor: Actor) -> Film:
    patches = np.zeros((STEPS, *GRID), np.uint8)
    for step in range(STEPS):
        patches[step, 1, 0] = actor.is_there(step)
    return Film(np.zeros((STEPS, 56, 56, 3), np.uint8), (actor,), patches)


@pytest.mark.parametrize(
    ("actor", "told"),
    [
        (Actor("star", ("red", "red"), STEPS, 0, STEPS, STILL), ["known"] * 4),
        (Actor("star", ("red", "red"), STEPS, 3, STEPS, STILL), [None, "new", "new", "new"]),
        (Actor("star", ("red", "red"), STEPS, 0, 5, STILL), ["known", "known", "gone", "gone"]),
        (Actor("star", ("red", "blue"), 4, 0, STEPS, STILL), ["known", "known", "turned", "turned"]),
    ],
)
def test_tokens_of_a_clip_know_what_happened_where_they_look(actor: Actor, told: list[str | None]) -> None:
    labels = news_labels([_film(actor)], [None], FAMILIES["qwen_vl"].arrange, 4).view(4, 4).numpy()
    assert [_said(step[0]) for step in labels] == told
    assert {_said(token) for token in labels[:, 1:].ravel()} == {None}


def test_tokens_of_a_second_picture_know_what_the_first_has_too() -> None:
    patches: NDArray[np.uint8] = np.zeros(GRID, np.uint8)
    patches[0, 0], patches[3, 3] = 1, 2
    star, ring = Shape("star", "red", 0.1, 0.1), Shape("ring", "blue", 0.9, 0.9)
    pixels = np.zeros((56, 56, 3), np.uint8)
    first, second = Picture(pixels, (star,), patches), Picture(pixels, (star, ring), patches)
    labels = news_labels([first, second], [None, first], FAMILIES["qwen_vl"].arrange, 4).numpy()
    assert [_said(token) for token in labels] == [None] * 4 + ["known", None, None, "new"]


def _said(label: np.int64) -> str | None:
    return None if label < 0 else NEWS[label]
