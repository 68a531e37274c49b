from __future__ import annotations

import json
import random
from typing import Any

import pytest
import tokenizers
from tokenizers import AddedToken, models, normalizers, pre_tokenizers

from inset.processing.token_reach import TokenReach

BYTES = sorted(pre_tokenizers.ByteLevel.alphabet())
FALLBACK = [f"<0x{byte:02X}>" for byte in range(256)]
WORDS = ["a", " ", "   ", "\n", "hello", "ｶﾞ", "e\u0301\u0327", "é", "ﷺ", "😀", "<image>", "ẛ̣", "\u1f82", "<sep>", "x" * 40, "\x85", "İ"]


def build(model: Any, *, normalizer: Any = None, pre_tokenizer: Any = None, added: tuple[AddedToken, ...] = ()) -> tokenizers.Tokenizer:
    tokenizer = tokenizers.Tokenizer(model)
    if normalizer is not None:
        tokenizer.normalizer = normalizer
    if pre_tokenizer is not None:
        tokenizer.pre_tokenizer = pre_tokenizer
    tokenizer.add_tokens([AddedToken("<image>", special=True, normalized=False), *added])
    return tokenizer


def byte_level() -> models.BPE:
    merges = [("a", "a"), ("aa", "aa"), ("x", "x"), ("xx", "xx"), ("xxxx", "xxxx"), ("Ġ", "Ġ")]
    return models.BPE(vocab={token: index for index, token in enumerate([*BYTES, *("".join(pair) for pair in merges)])}, merges=merges)


def by_fallback(**options: Any) -> models.BPE:
    pieces = ["<unk>", *FALLBACK, "▁", "a", "x", "xx", "e"]
    vocab = {token: index for index, token in enumerate(pieces)}
    return models.BPE(vocab=vocab, merges=[("x", "x")], unk_token="<unk>", byte_fallback=True, **options)


SPLIT = pre_tokenizers.Sequence(
    [pre_tokenizers.Split(tokenizers.Regex(r"\s+|\S+"), "isolated"), pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)]
)
METASPACE = normalizers.Sequence([normalizers.Prepend("▁"), normalizers.Replace(" ", "▁")])
BOUNDED: dict[str, Any] = {
    "byte level": lambda: build(byte_level(), pre_tokenizer=pre_tokenizers.ByteLevel(add_prefix_space=False)),
    "composing": lambda: build(byte_level(), normalizer=normalizers.NFC(), pre_tokenizer=SPLIT),
    "compatible": lambda: build(byte_level(), normalizer=normalizers.NFKC(), pre_tokenizer=SPLIT),
    "fallback": lambda: build(by_fallback(fuse_unk=True), normalizer=METASPACE),
    "swallowing": lambda: build(by_fallback(), added=(AddedToken("<sep>", lstrip=True, rstrip=True),)),
    "normalized": lambda: build(by_fallback(), normalizer=METASPACE, added=(AddedToken("<sep>", normalized=True),)),
    "unknown": lambda: build(models.BPE(vocab={"<unk>": 0, "a": 1}, merges=[], unk_token="<unk>")),
}
UNBOUNDED: dict[str, Any] = {
    "drops what it cannot spell": lambda: build(models.BPE(vocab={"a": 0}, merges=[])),
    "joins what it cannot spell": lambda: build(models.BPE(vocab={"<unk>": 0}, merges=[], unk_token="<unk>", fuse_unk=True)),
    "whole words": lambda: build(models.WordLevel(vocab={"<unk>": 0}, unk_token="<unk>"), pre_tokenizer=pre_tokenizers.Whitespace()),
    "white space": lambda: build(byte_level(), pre_tokenizer=pre_tokenizers.WhitespaceSplit()),
    "removing": lambda: build(byte_level(), pre_tokenizer=pre_tokenizers.Split(" ", "removed")),
    "strips": lambda: build(byte_level(), normalizer=normalizers.Strip(), pre_tokenizer=SPLIT),
    "replaces": lambda: build(byte_level(), normalizer=normalizers.Replace("aa", "a"), pre_tokenizer=SPLIT),
    "replaces a pattern": lambda: build(byte_level(), normalizer=normalizers.Replace(tokenizers.Regex("a+"), "a"), pre_tokenizer=SPLIT),
}


@pytest.mark.parametrize("name", BOUNDED)
def test_no_text_has_fewer_tokens_than_the_bound_says(name: str) -> None:
    tokenizer = BOUNDED[name]()
    reach = TokenReach.of(json.loads(tokenizer.to_str()))
    assert reach is not None
    choose = random.Random(name)
    for _ in range(300):
        text = "".join(choose.choices(WORDS, k=choose.randrange(30))) + choose.choice(WORDS) * choose.randrange(60)
        assert reach.least_num_tokens(text) <= len(tokenizer.encode(text, add_special_tokens=False).ids), text
    assert reach.least_num_tokens("a" * 10_000) >= 100


@pytest.mark.parametrize("name", UNBOUNDED)
def test_tokenizer_that_can_drop_or_join_without_end_has_no_bound(name: str) -> None:
    assert TokenReach.of(json.loads(UNBOUNDED[name]().to_str())) is None
