"""The shipped checkpoints through `inset.LLM`: right about what training never saw, and the same answers as plain transformers."""

from __future__ import annotations

from collections import defaultdict
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from evaluate import Answerer, Task

RIGHT = {"shapes-llava": 0.93, "shapes-qwen-vl": 0.94}
"""The share that the model cards' figures amount to, less a little."""
CLIPS = 40


@pytest.fixture(scope="module")
def tasks(checkpoint: Path) -> list[Task]:
    """One question about each of 200 scenes, the kinds in turn; some are clips where the model sees them."""
    from evaluate import held_out_clip_tasks, held_out_tasks

    clips = CLIPS if checkpoint.name == "shapes-qwen-vl" else 0
    asked: dict[tuple[int, str], list[Task]] = defaultdict(list)
    for task in [*held_out_clip_tasks(clips), *held_out_tasks(200 - clips)]:
        asked[task.scene, task.files[0].media_type].append(task)
    return [found[scene % len(found)] for (scene, _), found in asked.items()]


@pytest.fixture(scope="module")
def answers(checkpoint: Path, tasks: list[Task]) -> list[str]:
    from evaluate import with_inset

    return with_inset(checkpoint)(tasks)


def test_checkpoint_does_as_well_as_its_card_says_on_what_training_never_saw(
    checkpoint: Path, tasks: list[Task], answers: list[str]
) -> None:
    right = sum(answer == task.question.answer for answer, task in zip(answers, tasks, strict=True))
    assert right >= RIGHT[checkpoint.name] * len(tasks)


def test_plain_transformers_gives_the_same_answers(tasks: list[Task], answers: list[str], answerer: Answerer) -> None:
    assert answerer(tasks[:60]) == answers[:60]
