"""Text grows with its tokens and never shows what a stop text takes away."""

from __future__ import annotations

import pytest
import tokenizers
from hypothesis import given
from hypothesis import strategies as st
from tokenizers import decoders, models, pre_tokenizers

from inset.engine.detokenizer import Detokenizer


def byte_level() -> tokenizers.Tokenizer:
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    tokenizer = tokenizers.Tokenizer(models.BPE(vocab={letter: index for index, letter in enumerate(alphabet)}, merges=[]))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    return tokenizer


TOKENIZER = byte_level()


def ids(text: str) -> list[int]:
    return list(TOKENIZER.encode(text).ids)


@given(st.text(min_size=1, max_size=30))
def test_text_of_all_tokens_one_by_one_is_the_text_of_the_whole(text: str) -> None:
    detokenizer = Detokenizer(TOKENIZER)
    shown = ""
    for token_id in ids(text):
        detokenizer.add([token_id])
        assert detokenizer.text.startswith(shown)
        shown = detokenizer.text
    detokenizer.finish()
    assert detokenizer.text == text


@given(st.text("abé", min_size=0, max_size=20), st.lists(st.text("abé", min_size=1, max_size=4), min_size=1, max_size=3), st.booleans())
def test_answer_ends_at_the_first_stop_text_and_never_shows_more(text: str, stops: list[str], include: bool) -> None:
    detokenizer = Detokenizer(TOKENIZER, stop=stops, include_stop=include)
    ended = False
    prefix = ""
    for token_id in ids(text):
        ended = detokenizer.add([token_id])
        assert detokenizer.text.startswith(prefix)
        prefix = detokenizer.text
        if ended:
            break
    ended = ended or detokenizer.finish()
    ends = [(text.find(stop) + len(stop), stop) for stop in stops if stop in text]
    if not ends:
        assert not ended
        assert detokenizer.text == text
        return
    assert ended
    assert detokenizer.stop_reason in stops
    before = detokenizer.text.removesuffix(detokenizer.stop_reason) if include else detokenizer.text
    assert text.startswith(before + detokenizer.stop_reason)
    assert len(before) + len(detokenizer.stop_reason) == min(end for end, _ in ends)


def test_incomplete_character_at_the_end_is_shown_as_in_whole_decoding() -> None:
    detokenizer = Detokenizer(TOKENIZER)
    detokenizer.add(ids("é")[:1])
    assert detokenizer.text == ""
    detokenizer.finish()
    assert detokenizer.text == "\ufffd"


def test_stop_text_in_what_was_held_back_until_the_end_ends_the_answer() -> None:
    detokenizer = Detokenizer(TOKENIZER, stop=["\ufffd"])
    assert not detokenizer.add([*ids("a"), ids("é")[0]])
    assert detokenizer.finish()
    assert (detokenizer.text, detokenizer.stop_reason) == ("a", "\ufffd")


def test_stop_text_inside_the_minimum_length_does_not_end_the_answer() -> None:
    detokenizer = Detokenizer(TOKENIZER, stop=["b"], min_tokens=3)
    assert [detokenizer.add([token]) for token in ids("abacb")] == [False, False, False, False, True]
    assert detokenizer.text == "abac"


@pytest.mark.parametrize("include", [True, False])
def test_stop_text_across_token_borders_is_cut_or_kept(include: bool) -> None:
    detokenizer = Detokenizer(TOKENIZER, stop=["END"], include_stop=include)
    assert detokenizer.add(ids("aENDb"))
    assert detokenizer.text == ("aEND" if include else "a")
    assert detokenizer.token_ids == ids("aEND")
