"""Builds what stands around the weights: tokenizer, chat template, configs and processor files.

    python build.py FOLDER

The tokenizer is byte-level BPE, so any text can be encoded; its merges come from the questions of a few thousand scenes.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path

import numpy as np
from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers, trainers
from transformers import LlamaConfig, LlavaConfig

from data import MEAN, STD
from questions import CHAT, KINDS_FOR_TWO, KINDS_OF_QUESTION, SYSTEM_PROMPTS, ask, ask_two
from scenes import IMAGE_SIZE, draw_scene
from vision import VISION

SPECIAL = ("<pad>", "<s>", "</s>", "<image>", "<|system|>", "<|user|>", "<|assistant|>")
PAD, BOS, EOS, IMAGE, SYSTEM, USER, ASSISTANT = range(len(SPECIAL))
VOCAB_SIZE = 640
MAX_LENGTH = 2048
NUM_PATCHES = (IMAGE_SIZE // VISION.patch_size) ** 2

CHAT_TEMPLATE = """\
{{- bos_token -}}
{%- for message in messages -%}
{{- '<|' + message.role + '|>' -}}
{%- if message.content is string -%}
{{- message.content -}}
{%- else -%}
{%- for part in message.content -%}
{%- if part.type == 'text' -%}{{- part.text -}}{%- elif part.type in ('image', 'image_url', 'input_image') -%}{{- '<image>' -}}{%- endif -%}
{%- endfor -%}
{%- endif -%}
{%- if message.role == 'assistant' -%}{{- eos_token -}}{%- endif -%}
{%- endfor -%}
{%- if add_generation_prompt -%}{{- '<|assistant|>' -}}{%- endif -%}
"""


def llava_config() -> LlavaConfig:
    """Returns the configuration of the model: about 4 million parameters."""
    text = LlamaConfig(
        vocab_size=VOCAB_SIZE,
        hidden_size=192,
        intermediate_size=384,
        num_hidden_layers=4,
        num_attention_heads=6,
        num_key_value_heads=6,
        max_position_embeddings=MAX_LENGTH,
        bos_token_id=BOS,
        eos_token_id=EOS,
        pad_token_id=PAD,
        tie_word_embeddings=False,
    )
    return LlavaConfig(
        vision_config=VISION.to_dict(),
        text_config=text.to_dict(),
        image_token_index=IMAGE,
        image_seq_length=NUM_PATCHES,
        vision_feature_layer=-1,
        vision_feature_select_strategy="default",
        tie_word_embeddings=False,
        pad_token_id=PAD,
        bos_token_id=BOS,
        eos_token_id=EOS,
    )


def train_tokenizer(scenes: int = 3000) -> Tokenizer:
    """Returns a byte-level BPE whose merges cover the words that the questions use."""
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=VOCAB_SIZE,
        special_tokens=[AddedToken(token, special=True, normalized=False) for token in SPECIAL],
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    tokenizer.train_from_iterator(_sentences(scenes), trainer)
    return tokenizer


def tokenizer_config() -> dict[str, object]:
    """Returns tokenizer_config.json: which tokens are special, and that encoding adds none."""
    return {
        "tokenizer_class": "PreTrainedTokenizerFast",
        "bos_token": SPECIAL[BOS],
        "eos_token": SPECIAL[EOS],
        "pad_token": SPECIAL[PAD],
        "additional_special_tokens": list(SPECIAL[IMAGE:]),
        "image_token": SPECIAL[IMAGE],
        "model_max_length": MAX_LENGTH,
        "clean_up_tokenization_spaces": False,
        "add_bos_token": False,
        "padding_side": "left",
    }


def preprocessor_config() -> dict[str, object]:
    """Returns preprocessor_config.json: the whole picture, resized to a square."""
    return {
        "image_processor_type": "CLIPImageProcessor",
        "do_convert_rgb": True,
        "do_resize": True,
        "size": {"height": IMAGE_SIZE, "width": IMAGE_SIZE},
        "resample": 3,
        "do_center_crop": False,
        "crop_size": {"height": IMAGE_SIZE, "width": IMAGE_SIZE},
        "do_rescale": True,
        "rescale_factor": 1 / 255,
        "do_normalize": True,
        "image_mean": list(MEAN),
        "image_std": list(STD),
    }


def processor_config() -> dict[str, object]:
    """Returns processor_config.json: how many tokens stand for a picture."""
    return {
        "processor_class": "LlavaProcessor",
        "image_token": SPECIAL[IMAGE],
        "patch_size": VISION.patch_size,
        "vision_feature_select_strategy": "default",
        "num_additional_image_tokens": 1,
    }


def write_folder(folder: Path) -> None:
    """Writes every file of the checkpoint but the weights."""
    folder.mkdir(parents=True, exist_ok=True)
    train_tokenizer().save(str(folder / "tokenizer.json"))
    llava_config().save_pretrained(folder)
    config = json.loads((folder / "config.json").read_text())
    _write(folder / "config.json", {**config, "architectures": ["LlavaForConditionalGeneration"], "dtype": "float16"})
    _write(folder / "generation_config.json", {"bos_token_id": BOS, "eos_token_id": EOS, "pad_token_id": PAD, "do_sample": False})
    _write(folder / "tokenizer_config.json", tokenizer_config())
    _write(folder / "preprocessor_config.json", preprocessor_config())
    _write(folder / "processor_config.json", processor_config())
    (folder / "chat_template.jinja").write_text(CHAT_TEMPLATE)


def _sentences(scenes: int) -> Iterator[str]:
    rng = np.random.default_rng(5)
    shapes = [draw_scene("train", index, (64, 64)).shapes for index in range(scenes)]
    for first, second in pairwise(shapes):
        asked = [ask(rng, first, kind) for kind in KINDS_OF_QUESTION] + [ask_two(rng, first, second, kind) for kind in KINDS_FOR_TWO]
        for question in asked:
            if question is not None:
                yield question.text
                yield question.answer
    for line in [text for pair in CHAT for text in pair] + list(SYSTEM_PROMPTS):
        yield from [line] * 20


def _write(path: Path, value: dict[str, object]) -> None:
    path.write_text(json.dumps(value, indent=2) + "\n")


def main() -> None:
    """Runs the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    write_folder(parser.parse_args().folder)


if __name__ == "__main__":
    main()
