"""The shipped checkpoint through `inset.LLM`: right on 200 scenes that training never saw, and the same answers as plain transformers."""

from __future__ import annotations

from collections import defaultdict
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from evaluate import Answerer, Task


@pytest.fixture(scope="module")
def tasks() -> list[Task]:
    """One question about each of 200 scenes, the kinds in turn."""
    from evaluate import held_out_tasks

    by_scene: dict[int, list[Task]] = defaultdict(list)
    for task in held_out_tasks(200):
        by_scene[task.scene].append(task)
    return [asked[scene % len(asked)] for scene, asked in by_scene.items()]


@pytest.fixture(scope="module")
def answers(checkpoint: Path, tasks: list[Task]) -> list[str]:
    from evaluate import with_inset

    return with_inset(checkpoint)(tasks)


RIGHT = 0.7
"""The share that the model card's figures amount to, less a little."""


def test_checkpoint_does_as_well_as_its_card_says_on_scenes_that_training_never_saw(tasks: list[Task], answers: list[str]) -> None:
    assert len(tasks) == 200
    right = sum(answer == task.question.answer for answer, task in zip(answers, tasks, strict=True))
    assert right >= RIGHT * len(tasks)


def test_plain_transformers_gives_the_same_answers(tasks: list[Task], answers: list[str], answerer: Answerer) -> None:
    assert answerer(tasks[:40]) == answers[:40]
