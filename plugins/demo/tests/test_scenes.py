"""The generator: the same seed gives the same scene, and what it says about a scene is true."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
from PIL import Image
from torch import Tensor

from data import Picture, Pictures
from families import FAMILIES
from patch_heads import patch_labels
from questions import KINDS_FOR_TWO, KINDS_OF_QUESTION, ask, ask_two, describe
from samples import CLIPS, SAMPLES, write_samples
from scenes import KINDS, SPLITS, Scene, Shape, draw_scene
from shards import SQUARE, resize

RED_CIRCLE, BLUE_STAR = Shape("circle", "red", 0.2, 0.3), Shape("star", "blue", 0.7, 0.8)


def test_scene_is_a_function_of_split_and_index() -> None:
    first, again = draw_scene("test", 3), draw_scene("test", 3)
    assert first.shapes == again.shapes
    np.testing.assert_array_equal(first.picture, again.picture)


def test_no_split_shows_a_picture_of_another() -> None:
    pictures = {draw_scene(split, index, (48, 48)).picture.tobytes() for split in SPLITS for index in range(20)}
    assert len(pictures) == 20 * len(SPLITS)


def test_seeds_of_held_out_scenes_differ_from_those_of_training() -> None:
    assert len(set(SPLITS.values())) == len(SPLITS)
    assert {"train", "validation", "test", "sample"} == set(SPLITS)


@pytest.mark.parametrize("index", range(12))
def test_shapes_stand_from_left_to_right_inside_the_picture(index: int) -> None:
    shapes = draw_scene("test", index).shapes
    assert all(a.x < b.x for a, b in pairwise(shapes))
    assert all(0 < shape.x < 1 and 0 < shape.y < 1 for shape in shapes)


def test_content_can_be_asked_for() -> None:
    scene = draw_scene("test", 5, (200, 100), [("ring", "white"), ("heart", "red")])
    assert scene.picture.shape == (100, 200, 3)
    assert {(s.kind, s.colour) for s in scene.shapes} == {("ring", "white"), ("heart", "red")}


def test_patches_point_at_the_shapes_that_cover_them() -> None:
    scene = draw_scene("test", 8, None, [("square", "black"), ("circle", "green")])
    for number, shape in enumerate(scene.shapes, start=1):
        rows, columns = np.nonzero(scene.patches == number)
        assert abs((columns.mean() + 0.5) / 8 - shape.x) < 0.12
        assert abs((rows.mean() + 0.5) / 8 - shape.y) < 0.12


def _pool_of(tmp_path: Path, scene: Scene) -> Pictures:
    table = np.full((1, 4, 4), -1, np.float32)
    for i, s in enumerate(scene.shapes):
        table[0, i] = (KINDS.index(s.kind), 0, s.x, s.y)
    pixels = resize(scene.picture, SQUARE, SQUARE)[None]
    np.savez(tmp_path / "squares-train-0000.npz", pixels=pixels, patches=scene.patches[None], table=table)
    return Pictures(tmp_path, "squares", "train")


def test_mirrored_picture_keeps_labels_on_its_shapes(tmp_path: Path) -> None:
    pool = _pool_of(tmp_path, draw_scene("test", 8, None, [("square", "red"), ("circle", "red")]))
    plain, mirrored = pool.get(0), pool.get(0, mirror_x=True)
    assert [s.kind for s in mirrored.shapes] == [s.kind for s in plain.shapes][::-1]
    kinds = [_kinds_on_patches(picture) for picture in (plain, mirrored)]
    assert bool((kinds[0] == kinds[1].flip(1)).all())


def _kinds_on_patches(picture: Picture) -> Tensor:
    return patch_labels([picture], ["kind"], FAMILIES["llava"].arrange)["kind"].view(8, 8)


def test_resized_picture_has_the_size_asked_for() -> None:
    assert resize(draw_scene("test", 1, (300, 77)).picture, 84, 168).shape == (84, 168, 3)


@pytest.mark.parametrize(
    ("shapes", "words"),
    [
        ((), "nothing"),
        ((RED_CIRCLE,), "a red circle"),
        ((RED_CIRCLE, BLUE_STAR), "a red circle and a blue star"),
        ((Shape("ring", "orange", 0.1, 0.1), RED_CIRCLE, BLUE_STAR), "an orange ring, a red circle and a blue star"),
    ],
)
def test_description_lists_shapes_from_left_to_right(shapes: tuple[Shape, ...], words: str) -> None:
    assert describe(shapes) == words


@pytest.mark.parametrize("kind", KINDS_OF_QUESTION)
def test_question_about_one_picture_is_repeatable(kind: str) -> None:
    asked = [ask(np.random.default_rng(seed), (RED_CIRCLE, BLUE_STAR), kind) for seed in (1, 1)]
    assert asked[0] == asked[1]
    assert asked[0] is None or asked[0].kind == kind


@pytest.mark.parametrize("kind", KINDS_FOR_TWO)
def test_question_about_two_pictures_is_repeatable(kind: str) -> None:
    asked = [ask_two(np.random.default_rng(seed), (RED_CIRCLE,), (BLUE_STAR,), kind) for seed in (1, 1)]
    assert asked[0] == asked[1]
    assert asked[0] is None or asked[0].kind == kind


def test_answers_about_place_follow_the_centres() -> None:
    answers = {}
    for seed in range(300):
        question = ask(np.random.default_rng(seed), (RED_CIRCLE, BLUE_STAR), "relation")
        if question is not None:
            answers[question.text.lower().rstrip("?")] = question.answer
    assert answers["is the circle left or right of the star"] == "left"
    assert answers["is the star above or below the circle"] == "below"
    assert answers["what is on the right"] == "a blue star"
    assert answers["what is at the top"] == "a red circle"


def test_shipped_samples_are_what_the_generator_draws(tmp_path: Path, samples: Path) -> None:
    write_samples(tmp_path)
    assert (tmp_path / "contents.json").read_text() == (samples / "contents.json").read_text()
    for name, *_ in (*SAMPLES, *CLIPS):
        assert (samples / name).stat().st_size < 100_000
    for name in (name for name, *_ in SAMPLES if name.endswith(".png")):  # what other encoders lose depends on their version
        with Image.open(tmp_path / name) as drawn, Image.open(samples / name) as shipped:
            np.testing.assert_array_equal(np.asarray(drawn), np.asarray(shipped), name)
