"""Clips: the same seed gives the same clip, what is asked about one is answered by what happens, and labels follow when it is turned."""

from __future__ import annotations

from collections import defaultdict
from pathlib import Path

import numpy as np
import pytest

from clip_questions import KINDS_FOR_CLIPS, ask_about_clip
from clips import STEPS, STORIES, Actor, draw_clip, shapes_at
from data import Film, Films
from scenes import SPLITS
from shards import SHARD, draw_clips

STILL = ((0.2, 0.3), (0.2, 0.3))
CIRCLE = Actor("circle", ("red", "red"), STEPS, 0, STEPS, ((0.2, 0.5), (0.8, 0.52)))
STAR = Actor("star", ("blue", "blue"), STEPS, 3, STEPS, ((0.5, 0.2), (0.5, 0.2)))
HEART = Actor("heart", ("green", "white"), 4, 0, STEPS, STILL)


def test_clip_is_a_function_of_split_and_index() -> None:
    first, again = (draw_clip("test", 3, (56, 56)) for _ in range(2))
    assert first.actors == again.actors
    np.testing.assert_array_equal(first.frames, again.frames)


def test_no_split_shows_a_clip_of_another() -> None:
    clips = {draw_clip(split, index, (48, 48)).frames.tobytes() for split in SPLITS for index in range(6)}
    assert len(clips) == 6 * len(SPLITS)


@pytest.mark.parametrize("story", STORIES)
def test_story_that_is_asked_for_is_told(story: str) -> None:
    for index in range(8):
        actors = draw_clip("test", index, (56, 56), story=story).actors
        told = {
            "moves": any(actor.direction for actor in actors),
            "appears": any(actor.appears_at > 0 for actor in actors),
            "changes": any(actor.turns_at < STEPS for actor in actors),
        }
        assert [name for name, happens in told.items() if happens] == [story]


def test_more_frames_a_step_show_the_same_moments() -> None:
    slow, fast = draw_clip("test", 5, (64, 48)), draw_clip("test", 5, (64, 48), per_step=4)
    assert slow.actors == fast.actors
    assert len(fast.frames) == 4 * len(slow.frames)


def test_actor_moves_along_its_path_and_says_where_to() -> None:
    assert CIRCLE.direction == "right"
    assert STAR.direction is None
    assert CIRCLE.at(STEPS - 1).x == pytest.approx(0.8)
    assert [shape.kind for shape in shapes_at((CIRCLE, STAR), 0)] == ["circle"]
    assert [shape.kind for shape in shapes_at((CIRCLE, STAR), STEPS - 1)] == ["star", "circle"]


def _answers(actors: tuple[Actor, ...], kind: str) -> dict[str, set[str]]:
    answers: dict[str, set[str]] = defaultdict(set)
    for seed in range(400):
        question = ask_about_clip(np.random.default_rng(seed), actors, kind)
        if question is not None:
            answers[question.text.lower().rstrip("?").replace("color", "colour")].add(question.answer)
    return answers


@pytest.mark.parametrize("kind", ["direction", "order"])
def test_of_two_actors_that_look_alike_nothing_is_asked_by_name(kind: str) -> None:
    alike = Actor("circle", ("red", "red"), STEPS, 3, STEPS, ((0.5, 0.2), (0.5, 0.2)))
    answers = _answers((CIRCLE, alike), kind)
    assert answers
    assert not [text for text in answers if "the red circle" in text or "the circle" in text]
    assert all(len(said) == 1 for said in answers.values())


@pytest.mark.parametrize(
    ("kind", "text", "answer"),
    [
        ("direction", "which way does the circle move", "right"),
        ("direction", "does the circle move left or right", "right"),
        ("direction", "what moves", "a red circle"),
        ("order", "what comes first", "a red circle"),
        ("order", "which shape comes last", "a blue star"),
        ("order", "what appears", "a blue star"),
        ("scene", "what is in the video at first", "a red circle"),
        ("scene", "what is there at the end", "a blue star and a red circle"),
    ],
)
def test_answers_about_what_moves_and_appears(kind: str, text: str, answer: str) -> None:
    assert _answers((CIRCLE, STAR), kind)[text] == {answer}


@pytest.mark.parametrize(
    ("text", "answer"),
    [
        ("what colour is the heart at first", "green"),
        ("what colour is the heart at the end", "white"),
        ("which shape changes its colour", "the heart"),
        ("does the heart change its colour", "yes"),
    ],
)
def test_answers_about_a_change_of_colour(text: str, answer: str) -> None:
    assert _answers((HEART, STAR), "change")[text] == {answer}


@pytest.mark.parametrize("kind", KINDS_FOR_CLIPS)
def test_no_question_about_a_clip_has_two_answers(kind: str) -> None:
    for index in range(12):
        actors = draw_clip("test", index, (56, 56)).actors
        assert all(len(found) == 1 for found in _answers(actors, kind).values())


def _film(clip_index: int) -> Film:
    clip = draw_clip("test", clip_index, (112, 112))
    return Film(clip.frames, clip.actors, clip.patches)


def test_film_run_backwards_swaps_what_is_first_and_last(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("shards.SHARD", 24)
    assert SHARD > 24
    np.savez(tmp_path / "clips-test-0000.npz", **draw_clips("test", 0))  # type: ignore[arg-type]
    films = Films(tmp_path, "clips", "test")
    for index in range(len(films)):
        plain, turned = films.get(index), films.get(index, reverse=True)
        assert [s.kind for s in shapes_at(plain.actors, 0)] == [s.kind for s in shapes_at(turned.actors, STEPS - 1)]
        assert [s.colour for s in shapes_at(plain.actors, STEPS - 1)] == [s.colour for s in shapes_at(turned.actors, 0)]
        np.testing.assert_array_equal(plain.frames[::-1], turned.frames)
        moments = plain.moments, turned.moments[::-1]
        assert [m is None for m in moments[0]] == [m is None for m in moments[1]]


def test_moment_in_which_something_changes_says_nothing() -> None:
    for index in range(12):
        film = _film(index)
        events = {e for a in film.actors for e in (a.turns_at, a.appears_at, a.disappears_at) if 0 < e < STEPS}
        assert [moment is None for moment in film.moments] == [step + 1 in events for step in range(0, STEPS, 2)]
