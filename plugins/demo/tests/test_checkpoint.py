"""The shipped checkpoints: load in plain transformers, stay small, and are right about the sample pictures and clips."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pytest
from PIL import Image
from tokenizers import Tokenizer

from build import chat_template
from families import FAMILIES
from families.base import EOS, USER, Family
from inset.api import CheckpointRegistry
from inset_demo import plugin
from questions import Question

if TYPE_CHECKING:
    from evaluate import Answerer

TEXTS = (
    "What colour is the circle?",
    "Übergröße, 猫 and 🙂",
    "tabs\tand\nlines  and spaces ",
    "a red circle, a blue square and an orange star",
)

ASKED = [
    (("one-shape.png",), "What is in the picture?", "an orange star"),
    (("one-shape.png",), "What colour is the star?", "orange"),
    (("two-shapes.jpg",), "What is in the picture?", "a red circle and a blue square"),
    (("two-shapes.jpg",), "What colour is the circle?", "red"),
    (("two-shapes.jpg",), "How many shapes are there?", "2"),
    (("three-shapes.webp",), "How many shapes are there?", "3"),
    (("nothing.png",), "What is in the picture?", "nothing"),
    (("nothing.png",), "How many shapes are there?", "0"),
    (("two-shapes.jpg",), "Is there a blue square?", "yes"),
    (("two-shapes.jpg",), "Is there a star?", "no"),
    (("two-shapes.jpg",), "Is the circle left or right of the square?", "left"),
    (("one-shape.png", "two-shapes.jpg"), "Which picture has a star?", "the first"),
    (("one-shape.png", "two-shapes.jpg"), "Do both pictures show the same shapes?", "no"),
    (("two-shapes.jpg", "one-shape.png"), "What is in the second picture?", "an orange star"),
]
ASKED_OF_CLIPS = [
    (("changes.mp4",), "What colour is the star at the end?", "yellow"),
    (("moves.mp4",), "Which way does the heart move?", "right"),
]


@pytest.fixture
def family(checkpoint: Path) -> Family:
    return next(family for family in FAMILIES.values() if family.name == checkpoint.name)


@pytest.fixture
def tokenizer(checkpoint: Path) -> Tokenizer:
    return Tokenizer.from_file(str(checkpoint / "tokenizer.json"))


def test_plugin_registers_the_checkpoint_by_its_short_name(checkpoint: Path) -> None:
    registry = CheckpointRegistry()
    plugin.register_checkpoints(registry)
    assert registry.get(checkpoint.name).locate().resolve() == checkpoint.resolve()


def test_importing_the_plugin_loads_neither_torch_nor_numpy() -> None:
    code = "import sys, inset_demo.plugin; print(sorted({'torch', 'numpy', 'transformers'} & set(sys.modules)))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=60)
    assert done.stdout.strip() == "[]"


def test_checkpoint_is_small_and_safe(checkpoint: Path) -> None:
    files = {path.name: path.stat().st_size for path in checkpoint.iterdir()}
    assert sum(files.values()) < 10_000_000
    assert not [name for name in files if name.endswith((".bin", ".pt", ".pkl"))]


@pytest.mark.parametrize("text", TEXTS)
def test_tokenizer_gives_back_any_text(tokenizer: Tokenizer, text: str) -> None:
    assert tokenizer.decode(tokenizer.encode(text).ids) == text


def test_special_tokens_have_the_ids_that_the_config_names(checkpoint: Path, family: Family, tokenizer: Tokenizer) -> None:
    config = json.loads((checkpoint / "config.json").read_text())
    assert [tokenizer.token_to_id(token) for token in family.special] == list(range(len(family.special)))
    named = config.get("image_token_index"), config.get("image_token_id"), config.get("video_token_id")
    assert tuple(token for token in named if token is not None) == family.media_tokens
    assert config["text_config"]["eos_token_id"] == EOS
    assert tokenizer.encode("<|user|>hi").ids[0] == USER


def test_files_of_the_processor_are_those_that_training_assumed(checkpoint: Path, family: Family) -> None:
    for name, wanted in family.files().items():
        assert json.loads((checkpoint / name).read_text()) == wanted


def test_chat_template_reads_lists_of_parts_and_strings_alike(checkpoint: Path, family: Family) -> None:
    import jinja2

    template = chat_template(family)
    assert (checkpoint / "chat_template.jinja").read_text() == template
    turns = [
        {"role": "system", "content": "Be brief."},
        {"role": "user", "content": [{"type": "image"}, {"type": "text", "text": "What is this?"}]},
        {"role": "assistant", "content": "a red circle"},
        {"role": "user", "content": "Sure?"},
    ]
    environment = jinja2.Environment(autoescape=False)  # noqa: S701 - a prompt, not a page
    prompt = environment.from_string(template).render(messages=turns, bos_token="<s>", eos_token="</s>", add_generation_prompt=True)
    said = f"<s><|system|>Be brief.<|user|>{family.image}What is this?<|assistant|>a red circle</s><|user|>Sure?<|assistant|>"
    assert prompt == said


def test_model_is_right_about_the_samples(checkpoint: Path, samples: Path, answerer: Answerer) -> None:
    from evaluate import File, Task, picture_file

    def file(name: str) -> File:
        if name.endswith(".mp4"):
            return File("video/mp4", (samples / name).read_bytes())
        return picture_file(np.array(Image.open(samples / name).convert("RGB")))

    asked = ASKED + (ASKED_OF_CLIPS if checkpoint.name == "shapes-qwen-vl" else [])
    tasks = [Task(0, tuple(map(file, names)), Question("sample", text, right)) for names, text, right in asked]
    assert answerer(tasks) == [task.question.answer for task in tasks]


@pytest.mark.parametrize("name", ["noise", "transparent"])
def test_picture_of_nothing_has_nothing_in_it(answerer: Answerer, name: str) -> None:
    from evaluate import Task, picture_file

    if name == "noise":
        picture = np.random.default_rng(1).integers(0, 256, (240, 320, 3), np.uint8)
    else:
        clear = Image.new("RGBA", (120, 80))
        picture = np.array(Image.alpha_composite(Image.new("RGBA", clear.size, "white"), clear).convert("RGB"))
    question = Question("empty", "What is in the picture?", "nothing")
    assert answerer([Task(0, (picture_file(picture),), question)]) == ["nothing"]


def test_checkpoint_answers_held_out_scenes(answerer: Answerer) -> None:
    from evaluate import held_out_tasks, measure

    counts = measure(answerer, list(held_out_tasks(24)))
    assert all(counts[kind][0] / counts[kind][1] >= 0.6 for kind in ("naming", "colour", "counting")), counts


def test_clip_run_backwards_gets_the_opposite_answer(checkpoint: Path, answerer: Answerer) -> None:
    from clips import draw_clip
    from evaluate import PER_STEP, Task, clip_file

    if checkpoint.name != "shapes-qwen-vl":
        pytest.skip("sees no clips")
    frames = draw_clip("sample", 9, (224, 168), per_step=PER_STEP, story="changes").frames
    question = Question("change", "What colour is the star at the end?", "yellow")
    assert answerer([Task(0, (clip_file(shown),), question) for shown in (frames, frames[::-1])]) == ["yellow", "purple"]
