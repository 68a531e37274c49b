"""The shipped checkpoint: loads in plain transformers, stays small, and is right about the sample pictures."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from PIL import Image
from tokenizers import Tokenizer

from build import CHAT_TEMPLATE, EOS, IMAGE, SPECIAL, USER
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
]


def _pixels(path: Path) -> np.ndarray[Any, np.dtype[np.uint8]]:
    return np.array(Image.open(path).convert("RGB"))


def test_plugin_registers_the_checkpoint_by_its_short_name(checkpoint: Path) -> None:
    registry = CheckpointRegistry()
    plugin.register_checkpoints(registry)
    assert registry.get("shapes-llava").locate().resolve() == checkpoint.resolve()


def test_importing_the_plugin_loads_neither_torch_nor_numpy() -> None:
    code = "import sys, inset_demo.plugin; print(sorted({'torch', 'numpy', 'transformers'} & set(sys.modules)))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=60)
    assert done.stdout.strip() == "[]"


def test_checkpoint_is_small_and_safe(checkpoint: Path) -> None:
    files = {path.name: path.stat().st_size for path in checkpoint.iterdir()}
    assert sum(files.values()) < 10_000_000
    assert not [name for name in files if name.endswith((".bin", ".pt", ".pkl"))]


@pytest.mark.parametrize("text", TEXTS)
def test_tokenizer_gives_back_any_text(checkpoint: Path, text: str) -> None:
    tokenizer = Tokenizer.from_file(str(checkpoint / "tokenizer.json"))
    assert tokenizer.decode(tokenizer.encode(text).ids) == text


def test_special_tokens_have_the_ids_that_the_config_names(checkpoint: Path) -> None:
    tokenizer = Tokenizer.from_file(str(checkpoint / "tokenizer.json"))
    config = json.loads((checkpoint / "config.json").read_text())
    assert [tokenizer.token_to_id(token) for token in SPECIAL] == list(range(len(SPECIAL)))
    assert config["image_token_index"] == IMAGE
    assert config["text_config"]["eos_token_id"] == EOS
    assert tokenizer.encode("<|user|><image>hi").ids[:2] == [USER, IMAGE]


def test_chat_template_reads_lists_of_parts_and_strings_alike(checkpoint: Path) -> None:
    import jinja2

    assert (checkpoint / "chat_template.jinja").read_text() == CHAT_TEMPLATE
    template = jinja2.Environment(autoescape=False).from_string(CHAT_TEMPLATE)  # noqa: S701 - a prompt, not a page
    turns = [
        {"role": "system", "content": "Be brief."},
        {"role": "user", "content": [{"type": "image"}, {"type": "text", "text": "What is this?"}]},
        {"role": "assistant", "content": "a red circle"},
        {"role": "user", "content": "Sure?"},
    ]
    prompt = template.render(messages=turns, bos_token="<s>", eos_token="</s>", add_generation_prompt=True)
    assert prompt == "<s><|system|>Be brief.<|user|><image>What is this?<|assistant|>a red circle</s><|user|>Sure?<|assistant|>"


def test_model_is_right_about_the_sample_pictures(samples: Path, answerer: Answerer) -> None:
    from evaluate import Task

    tasks = [Task(0, tuple(_pixels(samples / name) for name in names), Question("sample", text, right)) for names, text, right in ASKED]
    assert answerer(tasks) == [task.question.answer for task in tasks]


@pytest.mark.parametrize("name", ["noise", "transparent"])
def test_picture_of_nothing_has_nothing_in_it(answerer: Answerer, name: str) -> None:
    from evaluate import Task

    if name == "noise":
        picture = np.random.default_rng(1).integers(0, 256, (240, 320, 3), np.uint8)
    else:
        clear = Image.new("RGBA", (120, 80))
        picture = np.array(Image.alpha_composite(Image.new("RGBA", clear.size, "white"), clear).convert("RGB"))
    assert answerer([Task(0, (picture,), Question("empty", "What is in the picture?", "nothing"))]) == ["nothing"]


def test_checkpoint_answers_held_out_scenes(answerer: Answerer) -> None:
    from evaluate import held_out_tasks, measure

    counts = measure(answerer, list(held_out_tasks(24)))
    assert all(counts[kind][0] / counts[kind][1] >= 0.6 for kind in ("naming", "colour", "counting")), counts
