"""Tests of the tokenizer."""

from __future__ import annotations

import json
import subprocess
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from inset.checkpoint import load_checkpoint
from inset.errors import ConfigError
from inset.processing.tokenizer import Tokenizer


def save_checkpoint(folder: Path, tokenizer_json: str, **configs: object) -> Path:
    files = {"config": {"model_type": "tiny", "architectures": ["Tiny"]}, **configs}
    for name, config in files.items():
        (folder / f"{name}.json").write_text(json.dumps(config))
    (folder / "tokenizer.json").write_text(tokenizer_json)
    return folder


def test_encode_finds_added_tokens_and_encode_as_text_finds_none(tokenizer: Tokenizer) -> None:
    text = "what is <image> in <tool_call> ?"
    added = tokenizer.added_tokens
    assert tokenizer.added_ids_in(tokenizer.encode(text)) == [added["<image>"], added["<tool_call>"]]
    as_text = tokenizer.encode_as_text(text)
    assert tokenizer.added_ids_in(as_text) == []
    assert tokenizer.decode(as_text) == text


def test_plain_text_encodes_alike_both_ways(tokenizer: Tokenizer) -> None:
    text = "a red square, naïve 日本 \U0001f600"
    assert tokenizer.encode(text) == tokenizer.encode_as_text(text)


def test_special_tokens_are_added_only_on_request_and_skipped_when_decoding(tokenizer: Tokenizer) -> None:
    start = tokenizer.token_to_id("<s>")
    assert tokenizer.encode("a red")[0] != start
    with_special = tokenizer.encode("a red", add_special_tokens=True)
    assert with_special[0] == start
    assert tokenizer.decode(with_special) == "a red"
    assert tokenizer.decode(with_special, skip_special_tokens=False) == "<s>a red"
    assert tokenizer.special_tokens_around == ((start,), ())


def test_a_lone_surrogate_is_encoded_as_a_replacement_character(tokenizer: Tokenizer) -> None:
    assert tokenizer.decode(tokenizer.encode("a\ud800b")) == "a�b"
    assert tokenizer.decode(tokenizer.encode_as_text("a\ud800b")) == "a�b"


def test_padding_and_truncation_saved_in_the_file_are_ignored(tokenizer_json: str) -> None:
    saved = json.loads(tokenizer_json)
    saved["truncation"] = {"direction": "Right", "max_length": 2, "strategy": "LongestFirst", "stride": 0}
    saved["padding"] = {
        "strategy": {"Fixed": 9},
        "direction": "Right",
        "pad_to_multiple_of": None,
        "pad_id": 0,
        "pad_type_id": 0,
        "pad_token": "!",
    }
    assert Tokenizer(json.dumps(saved)).encode("a red square on") == Tokenizer(tokenizer_json).encode("a red square on")


@pytest.mark.parametrize(
    ("generation_config", "config", "tokens"),
    [
        ({"eos_token_id": [5, 7]}, {}, {5, 7}),
        ({"eos_token_id": 5}, {"eos_token_id": 9}, {5}),
        ({}, {"eos_token_id": 9}, {9}),
        ({}, {"text_config": {"eos_token_id": 11}}, {11}),
        ({}, {}, set()),
    ],
)
def test_eos_ids_come_from_generation_config_then_config_and_the_tokenizers_own(
    tmp_path: Path, tokenizer_json: str, generation_config: dict[str, object], config: dict[str, object], tokens: set[int]
) -> None:
    save_checkpoint(
        tmp_path,
        tokenizer_json,
        config={"model_type": "tiny", "architectures": ["Tiny"], **config},
        generation_config=generation_config,
        tokenizer_config={"eos_token": {"content": "</s>"}, "bos_token": "<s>", "pad_token": None},
    )
    tokenizer = Tokenizer.from_checkpoint(load_checkpoint(tmp_path))
    assert set(tokenizer.eos_token_ids) == tokens | {tokenizer.token_to_id("</s>")}
    assert tokenizer.named_tokens == {"eos_token": "</s>", "bos_token": "<s>"}


def test_a_checkpoint_without_a_readable_tokenizer_is_a_config_error(tmp_path: Path, tokenizer_json: str) -> None:
    checkpoint = load_checkpoint(save_checkpoint(tmp_path, tokenizer_json))
    (tmp_path / "tokenizer.json").write_text("{]")
    with pytest.raises(ConfigError, match="cannot be read"):
        Tokenizer.from_checkpoint(checkpoint)
    (tmp_path / "tokenizer.json").unlink()
    with pytest.raises(ConfigError, match=r"has no tokenizer\.json"):
        Tokenizer.from_checkpoint(checkpoint)


def test_threads_that_encode_both_ways_never_disturb_each_other(tokenizer: Tokenizer) -> None:
    text = "<image> what is in the <|im_end|>"
    full, plain = tokenizer.encode(text), tokenizer.encode_as_text(text)
    with ThreadPoolExecutor(4) as pool:
        results = list(pool.map(lambda index: tokenizer.encode(text) if index % 2 else tokenizer.encode_as_text(text), range(2000)))
    assert all(result == (full if index % 2 else plain) for index, result in enumerate(results))


def test_tokenizing_loads_neither_torch_nor_transformers(tmp_path: Path, tokenizer_json: str) -> None:
    save_checkpoint(tmp_path, tokenizer_json)
    code = (
        "import sys, pathlib\n"
        "from inset.checkpoint import load_checkpoint\n"
        "from inset.processing.tokenizer import Tokenizer\n"
        f"assert Tokenizer.from_checkpoint(load_checkpoint(pathlib.Path({str(tmp_path)!r}))).encode('a')\n"
        "assert not {'torch', 'transformers'} & set(sys.modules)\n"
    )
    subprocess.run([sys.executable, "-c", code], check=True, timeout=60)


def test_other_threads_run_while_a_text_is_tokenised(tokenizer: Tokenizer) -> None:
    """The lock of the interpreter would let them run once or twice."""
    encoding = threading.Thread(target=tokenizer.encode, args=("some words, " * 20_000,))
    encoding.start()
    turns = 0
    while encoding.is_alive():
        time.sleep(0.001)
        turns += 1
    assert turns > 10
