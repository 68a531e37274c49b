"""Measures a checkpoint on scenes and clips that training never saw, one kind of question after the other.

    python evaluate.py FOLDER --scenes 200                     with plain transformers
    python evaluate.py FOLDER --scenes 200 --backend inset     through inset.LLM

Every question is a conversation of its own about files of full size; an answer counts when it is right word for word.
"""

from __future__ import annotations

import argparse
import base64
import io
import json
import time
from collections import defaultdict
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import count
from pathlib import Path
from typing import NamedTuple

import numpy as np
from PIL import Image

from clip_questions import KINDS_FOR_CLIPS, ask_about_clip
from clips import STEPS_PER_SECOND, draw_clip, encode_mp4
from questions import KINDS_FOR_TWO, KINDS_OF_QUESTION, MOST, Question, ask, ask_two
from scenes import COLOURS, KINDS, Pixels, Scene, Shape, draw_scene

MAX_TOKENS = 32
STRIDE = 32
"""So many numbers of scenes are set aside for each of the evaluation's."""
PER_STEP = 4
"""Frames of a clip's file in each of its steps: more than a model looks at."""


class File(NamedTuple):
    """A picture or a clip as a file.

    Attributes:
        media_type: As in an HTTP header.
        data: The bytes.
    """

    media_type: str
    data: bytes


@dataclass(frozen=True, slots=True)
class Task:
    """One question with the files that it is about, and the number of its scene or clip."""

    scene: int
    files: tuple[File, ...]
    question: Question


Answerer = Callable[[list[Task]], list[str]]


def picture_file(picture: Pixels) -> File:
    """Returns a picture as PNG."""
    file = io.BytesIO()
    Image.fromarray(picture).save(file, "PNG")
    return File("image/png", file.getvalue())


def clip_file(frames: Pixels) -> File:
    """Returns a clip, `PER_STEP` frames each step, as MP4."""
    return File("video/mp4", encode_mp4(frames, frames_per_second=PER_STEP * STEPS_PER_SECOND))


def held_out_tasks(scenes: int, split: str = "test") -> Iterator[Task]:
    """Yields, for each scene, one question of every kind that it allows."""
    for index in range(scenes):
        rng = np.random.default_rng([7, index])
        scene, other = _scenes(rng, split, index)
        files = picture_file(scene.picture), picture_file(other.picture)
        for kind in KINDS_OF_QUESTION:
            question = ask(rng, scene.shapes, kind)
            if question is not None:
                yield Task(index, files[:1], question)
        for kind in KINDS_FOR_TWO:
            question = ask_two(rng, scene.shapes, other.shapes, kind)
            if question is not None:
                yield Task(index, files, question)


def held_out_clip_tasks(clips: int, split: str = "test") -> Iterator[Task]:
    """Yields, for each clip, one question of every kind that it allows."""
    for index in range(clips):
        rng = np.random.default_rng([8, index])
        clip = draw_clip(split, index, per_step=PER_STEP)
        file = clip_file(clip.frames)
        for kind in KINDS_FOR_CLIPS:
            question = ask_about_clip(rng, clip.actors, kind)
            if question is not None:
                yield Task(index, (file,), question)


def _scenes(rng: np.random.Generator, split: str, index: int) -> tuple[Scene, Scene]:
    """Returns two scenes of at most `MOST` objects each; where one has more, the next with fewer takes its place."""
    scenes = (draw_scene(split, number) for number in count(index * STRIDE))
    first = next(scene for scene in scenes if len(scene.shapes) <= MOST)
    content = _second_content(rng, first.shapes)
    if content is not None:
        return first, draw_scene(split, index * STRIDE + STRIDE - 1, content=content)
    return first, next(scene for scene in scenes if len(scene.shapes) <= MOST)


def _content(shapes: tuple[Shape, ...]) -> list[tuple[str, str]]:
    return [(shape.kind, shape.colour) for shape in shapes]


def _second_content(rng: np.random.Generator, shapes: tuple[Shape, ...]) -> list[tuple[str, str]] | None:
    """Returns what a second picture shows: the same, the same with one thing changed, or None for anything."""
    style, content = rng.random(), _content(shapes)
    if style > 0.7 or (style > 0.4 and not content):
        return None
    if style > 0.4:
        i = int(rng.integers(len(content)))
        kind, colour = content[i]
        content[i] = (_other(rng, KINDS, kind), colour) if rng.random() < 0.5 else (kind, _other(rng, COLOURS, colour))
    return content


def _other(rng: np.random.Generator, values: tuple[str, ...], value: str) -> str:
    return str(rng.choice([v for v in values if v != value]))


def with_inset(folder: Path) -> Answerer:
    """Returns a function that answers through `inset.LLM`."""
    import inset

    params = inset.SamplingParams(temperature=0, max_tokens=MAX_TOKENS)

    def answer(tasks: list[Task]) -> list[str]:
        conversations = [[{"role": "user", "content": [*map(_part, t.files), {"type": "text", "text": t.question.text}]}] for t in tasks]
        with inset.LLM(folder) as llm:
            return [output.outputs[0].text for output in llm.chat(conversations, params, use_tqdm=False)]

    return answer


def _part(file: File) -> dict[str, object]:
    name = "image_url" if file.media_type.startswith("image/") else "video_url"
    return {"type": name, name: {"url": f"data:{file.media_type};base64,{base64.b64encode(file.data).decode()}"}}


def measure(answerer: Answerer, tasks: list[Task], *, show: int = 0) -> dict[str, tuple[int, int]]:
    """Returns (right, asked) for each kind of question, and prints the first `show` wrong answers."""
    counts: dict[str, list[int]] = defaultdict(lambda: [0, 0])
    for task, text in zip(tasks, answerer(tasks), strict=True):
        right = text == task.question.answer
        counts[task.question.kind][0] += right
        counts[task.question.kind][1] += 1
        if not right and show > 0:
            show -= 1
            print(f"scene {task.scene}, {task.question.text!r}: {text!r}, right is {task.question.answer!r}")
    return {kind: (right, asked) for kind, (right, asked) in counts.items()}


def main() -> None:
    """Runs the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--scenes", type=int, default=200)
    parser.add_argument("--backend", choices=("transformers", "inset"), default="transformers")
    parser.add_argument("--show", type=int, default=0, help="how many wrong answers to print")
    parser.add_argument("--json", type=Path, help="write the figures here")
    options = parser.parse_args()
    began = time.monotonic()
    if options.backend == "inset":
        answerer = with_inset(options.folder)
    else:
        from plain_transformers import with_transformers

        answerer = with_transformers(options.folder)
    tasks = list(held_out_tasks(options.scenes))
    if (options.folder / "video_preprocessor_config.json").is_file():
        tasks += held_out_clip_tasks(options.scenes)
    result = measure(answerer, tasks, show=options.show)
    for kind, (right, asked) in result.items():
        print(f"{kind:20} {right / asked:7.1%}  of {asked}")
    print(f"{time.monotonic() - began:.0f} s")
    if options.json:
        options.json.write_text(
            json.dumps({kind: {"right": right, "asked": asked} for kind, (right, asked) in result.items()}, indent=2) + "\n"
        )


if __name__ == "__main__":
    main()
