"""How much text one token can stand for at most, so that text which can never fit is refused before it is tokenised."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from typing import Any, Final, NamedTuple, Self

__all__ = ["TokenReach"]

_KEEPING_PRE_TOKENIZERS: Final = ("ByteLevel", "Digits", "Metaspace", "Split")
_DECOMPOSITION: Final = {"NFC": 4, "NFD": 1, "NFKC": 18, "NFKD": 1, "Lowercase": 1, "Prepend": 1}
"""Normaliser -> the most characters that become one. What is composed decomposes again, and not into more than this many.

Source: the Unicode Standard, annex 15: the longest canonical decomposition of a character has 4 characters, the longest compatible one 18.
"""

_GROWTH: Final = 20
"""An added token that is looked for in normalised text is normalised itself, which makes no character of it more than this many."""


class TokenReach(NamedTuple):
    """A bound that holds for every text; see `of`.

    Attributes:
        characters: The most characters of the normalised text that one token stands for.
        composed: The most characters of a text beyond ASCII that the normaliser makes one of.
        keeps_white_space: No token swallows the white space beside it, however much there is.
    """

    characters: int
    composed: int
    keeps_white_space: bool

    @classmethod
    def of(cls, spec: Mapping[str, Any]) -> Self | None:
        """Returns the reach of the tokens of a ``tokenizer.json``, or None where no bound is certain.

        It is certain for BPE alone, where every character is spelled, where the normaliser drops none, and where no pre-tokenizer does.
        """
        model, added = spec["model"], spec.get("added_tokens") or ()
        composed = _composed(spec.get("normalizer"))
        pre_tokenizers = list(_flat(spec.get("pre_tokenizer"), "pretokenizers"))
        is_kept = all(part.get("type") in _KEEPING_PRE_TOKENIZERS and part.get("behavior") != "Removed" for part in pre_tokenizers)
        if composed is None or not is_kept or not _spells_all(model, by_bytes=any(part["type"] == "ByteLevel" for part in pre_tokenizers)):
            return None
        has_normalizer = spec.get("normalizer") is not None
        grown = [len(token["content"]) * (_GROWTH if has_normalizer and token.get("normalized") else 1) for token in added]
        longest = max([*map(len, model["vocab"]), *grown])
        return cls(longest, composed, not any(token.get("lstrip") or token.get("rstrip") for token in added))

    def least_num_tokens(self, text: str) -> int:
        """Returns a number of tokens that the text has at least."""
        num_characters = len(text) if self.keeps_white_space else sum(map(len, text.split()))
        return math.ceil(num_characters / (self.characters * (1 if text.isascii() else self.composed)))


def _flat(part: Mapping[str, Any] | None, inner: str) -> Iterator[Mapping[str, Any]]:
    """Yields the steps of a pipeline, those of sequences one by one."""
    if part is None:
        return
    if part.get("type") != "Sequence":
        yield part
        return
    for step in part[inner]:
        yield from _flat(step, inner)


def _composed(normalizer: Mapping[str, Any] | None) -> int | None:
    """Returns how many characters become one at most, or None where some may be dropped."""
    composed = 1
    for step in _flat(normalizer, "normalizers"):
        if step.get("type") == "Replace":
            pattern = step["pattern"].get("String")
            if pattern is None or len(step["content"]) != len(pattern):
                return None
        elif step.get("type") in _DECOMPOSITION:
            composed *= _DECOMPOSITION[step["type"]]
        else:
            return None
    return composed


def _spells_all(model: Mapping[str, Any], *, by_bytes: bool) -> bool:
    """Whether every character becomes a token of its own, or part of one; some models drop what they cannot spell, or join it."""
    if model.get("type") != "BPE":
        return False
    vocab = model["vocab"]
    if by_bytes:
        from tokenizers.pre_tokenizers import ByteLevel

        has_bytes = all(letter in vocab for letter in ByteLevel.alphabet())
    else:
        has_bytes = bool(model.get("byte_fallback")) and all(f"<0x{byte:02X}>" in vocab for byte in range(256))
    return has_bytes or (model.get("unk_token") in vocab and not model.get("fuse_unk"))
