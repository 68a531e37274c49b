"""Fixtures of the processing tests: a byte-level tokenizer as multimodal checkpoints have it."""

from __future__ import annotations

import json

import pytest
import tokenizers

from inset.processing.tokenizer import Tokenizer

SPECIAL = ("<s>", "</s>", "<image>", "<|im_start|>", "<|im_end|>", "<|pad|>")
NON_SPECIAL = ("<tool_call>", "</tool_call>")


def make_byte_level_json() -> str:
    """Returns the tokenizer.json of a small byte-level BPE with special and non-special added tokens."""
    tokenizer = tokenizers.Tokenizer(tokenizers.models.BPE())
    tokenizer.pre_tokenizer = tokenizers.pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = tokenizers.decoders.ByteLevel()
    trainer = tokenizers.trainers.BpeTrainer(
        vocab_size=400, initial_alphabet=tokenizers.pre_tokenizers.ByteLevel.alphabet(), show_progress=False
    )
    tokenizer.train_from_iterator(["what is in the image ? a red square on a blue ground . user assistant system"] * 4, trainer)
    tokenizer.add_special_tokens(list(SPECIAL))
    tokenizer.add_tokens([tokenizers.AddedToken(text, special=False, normalized=False) for text in NON_SPECIAL])
    tokenizer.post_processor = tokenizers.processors.TemplateProcessing(
        single="<s> $A", special_tokens=[("<s>", tokenizer.token_to_id("<s>"))]
    )
    return str(tokenizer.to_str())


@pytest.fixture(scope="session")
def tokenizer_json() -> str:
    return make_byte_level_json()


@pytest.fixture(scope="session")
def tokenizer(tokenizer_json: str) -> Tokenizer:
    named = {"bos_token": "<s>", "eos_token": "</s>"}
    end = json.loads(tokenizer_json)["added_tokens"][1]["id"]
    return Tokenizer(tokenizer_json, eos_token_ids=[end], named_tokens=named)
