"""Builds what stands around the weights: tokenizer, chat template, configs and processor files.

    python build.py FAMILY FOLDER

The tokenizer is byte-level BPE, so any text can be encoded; its merges come from the questions about a few thousand scenes and clips.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path

import numpy as np
from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers, trainers

from clip_questions import KINDS_FOR_CLIPS, ask_about_clip
from clips import draw_clip
from families import FAMILIES
from families.base import BOS, EOS, IMAGE, MAX_LENGTH, PAD, Family
from questions import CHAT, KINDS_FOR_TWO, KINDS_OF_QUESTION, SYSTEM_PROMPTS, ask, ask_two
from scenes import draw_scene

_TEMPLATE = """\
{{- bos_token -}}
{%- for message in messages -%}
{{- '<|' + message.role + '|>' -}}
{%- if message.content is string -%}
{{- message.content -}}
{%- else -%}
{%- for part in message.content -%}
{%- if part.type == 'text' -%}{{- part.text -}}{%- elif part.type in ('image', 'image_url', 'input_image') -%}{{- 'IMAGE' -}}VIDEO{%- endif -%}
{%- endfor -%}
{%- endif -%}
{%- if message.role == 'assistant' -%}{{- eos_token -}}{%- endif -%}
{%- endfor -%}
{%- if add_generation_prompt -%}{{- '<|assistant|>' -}}{%- endif -%}
"""  # noqa: E501 - as people will read it in the checkpoint
_VIDEO = "{%- elif part.type in ('video', 'video_url') -%}{{- 'VIDEO' -}}"


def chat_template(family: Family) -> str:
    """Returns the template of a family's chats, in Jinja."""
    video = _VIDEO.replace("VIDEO", family.video) if family.video else ""
    return _TEMPLATE.replace("IMAGE", family.image).replace("VIDEO", video)


def train_tokenizer(family: Family, scenes: int = 3000) -> Tokenizer:
    """Returns a byte-level BPE whose merges cover the words that the questions use."""
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=family.vocab_size,
        special_tokens=[AddedToken(token, special=True, normalized=False) for token in family.special],
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    tokenizer.train_from_iterator(_sentences(family, scenes), trainer)
    return tokenizer


def tokenizer_config(family: Family) -> dict[str, object]:
    """Returns tokenizer_config.json: which tokens are special, and that encoding adds none."""
    special = family.special
    named = {"video_token": "<|video_pad|>"} if family.video else {}
    return {
        "tokenizer_class": "PreTrainedTokenizerFast",
        "bos_token": special[BOS],
        "eos_token": special[EOS],
        "pad_token": special[PAD],
        "additional_special_tokens": list(special[IMAGE:]),
        "image_token": special[IMAGE],
        **named,
        "model_max_length": MAX_LENGTH,
        "clean_up_tokenization_spaces": False,
        "add_bos_token": False,
        "padding_side": "left",
    }


def write_folder(family: Family, folder: Path) -> None:
    """Writes every file of the checkpoint but the weights."""
    folder.mkdir(parents=True, exist_ok=True)
    train_tokenizer(family).save(str(folder / "tokenizer.json"))
    model_config = family.config()
    model_config.save_pretrained(folder)
    config = json.loads((folder / "config.json").read_text())
    files = {
        "config.json": {**config, "architectures": [family.architecture], "dtype": "float16"},
        "generation_config.json": {"bos_token_id": BOS, "eos_token_id": EOS, "pad_token_id": PAD, "do_sample": False},
        "tokenizer_config.json": tokenizer_config(family),
        **family.files(),
    }
    for name, value in files.items():
        (folder / name).write_text(json.dumps(value, indent=2) + "\n")
    (folder / "chat_template.jinja").write_text(chat_template(family))


def _sentences(family: Family, scenes: int) -> Iterator[str]:
    rng = np.random.default_rng(5)
    shapes = [draw_scene("train", index, (64, 64)).shapes for index in range(scenes)]
    for first, second in pairwise(shapes):
        asked = [ask(rng, first, kind) for kind in KINDS_OF_QUESTION] + [ask_two(rng, first, second, kind) for kind in KINDS_FOR_TWO]
        for question in asked:
            if question is not None:
                yield question.text
                yield question.answer
    if family.video:
        for index in range(scenes // 6):
            actors = draw_clip("train", index, (64, 64)).actors
            for kind in KINDS_FOR_CLIPS * 4:
                question = ask_about_clip(rng, actors, kind)
                if question is not None:
                    yield question.text
                    yield question.answer
    for line in [text for pair in CHAT for text in pair] + list(SYSTEM_PROMPTS):
        yield from [line] * 20


def main() -> None:
    """Runs the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("family", choices=tuple(FAMILIES))
    parser.add_argument("folder", type=Path)
    options = parser.parse_args()
    write_folder(FAMILIES[options.family], options.folder)


if __name__ == "__main__":
    main()
