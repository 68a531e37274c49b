"""Text grows with its tokens and never shows what a stop text takes away."""

from __future__ import annotations

import contextlib

import pytest
import tokenizers
from hypothesis import example, given
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


def byte_fallback() -> tokenizers.Tokenizer:
    """A tokenizer of the Llama type: characters without a token are spelled by the tokens of their bytes."""
    words = ["<unk>", "\u2581", "B", "\u2581B", *(f"<0x{byte:02X}>" for byte in range(256))]
    vocab = {word: index for index, word in enumerate(words)}
    tokenizer = tokenizers.Tokenizer(models.BPE(vocab=vocab, merges=[], unk_token="<unk>", byte_fallback=True))
    tokenizer.add_special_tokens(["<unk>"])
    tokenizer.decoder = decoders.Sequence(
        [decoders.Replace("\u2581", " "), decoders.ByteFallback(), decoders.Fuse(), decoders.Strip(" ", 1, 0)]
    )
    return tokenizer


FALLBACK = byte_fallback()
WORDS = {"": 0, " ": 1, "B": 2, " B": 3}  # the unknown token is a special one, which shows nothing
Pieces = list[bytes | str]


def fallback_ids(pieces: Pieces) -> list[int]:
    return [token_id for piece in pieces for token_id in ([WORDS[piece]] if isinstance(piece, str) else [4 + byte for byte in piece])]


def stream(token_ids: list[int]) -> str:
    """Returns the deltas of the tokens one by one, joined."""
    detokenizer = Detokenizer(FALLBACK)
    deltas = []
    for token_id in token_ids:
        before = detokenizer.text
        detokenizer.add([token_id])
        assert detokenizer.text.startswith(before)
        deltas.append(detokenizer.text[len(before) :])
    before = detokenizer.text
    detokenizer.finish()
    assert detokenizer.text.startswith(before)
    return "".join([*deltas, detokenizer.text[len(before) :]])


def runs_of(pieces: Pieces) -> Pieces:
    """Returns the pieces with neighbouring bytes joined, and without what shows nothing."""
    runs: Pieces = []
    for piece in pieces:
        if isinstance(piece, bytes) and runs and isinstance(runs[-1], bytes):
            runs[-1] += piece
        elif piece:
            runs.append(piece)
    return runs


def shown_early(run: bytes) -> str:
    """Returns what is shown of a run of bytes before it is seen that it is no UTF-8: its longest beginning that is."""
    for size in range(len(run), 0, -1):
        with contextlib.suppress(UnicodeDecodeError):
            text = run[:size].decode()
            if not text.endswith("\ufffd"):
                return text
    return ""


def is_text(run: bytes) -> bool:
    try:
        run.decode()
    except UnicodeDecodeError:
        return False
    return True


RUNS = st.one_of(
    st.sampled_from(list(WORDS)),
    st.text("\n \u00e9\u4e2d\U0001f600\ufffdB", min_size=1, max_size=3).map(str.encode),
    st.lists(st.sampled_from(b"\n \xc3\xa9\xf0\x9f\x98\x80\xef\xbf\xbd\xff"), min_size=1, max_size=4).map(bytes),
)


@given(st.lists(RUNS, max_size=12))
@example(["B", b"\n\xf0", "B"])
@example([b"\n\xf0"])
def test_byte_tokens_one_by_one_are_the_text_of_the_whole_but_for_characters_shown_before_broken_bytes(rest: Pieces) -> None:
    pieces: Pieces = ["B", *rest]  # the first token of all loses its space, which is another matter
    expected = ""
    for run in runs_of(pieces):
        if isinstance(run, str):
            expected += run
        elif is_text(run):
            expected += run.decode()
        else:
            early = shown_early(run)
            expected += early + "\ufffd" * (len(run) - len(early.encode()))
    token_ids = fallback_ids(pieces)
    assert stream(token_ids) == expected
    if all(isinstance(run, str) or is_text(run) or not shown_early(run) for run in runs_of(pieces)):
        assert expected == FALLBACK.decode(token_ids)


@given(st.lists(st.integers(0, FALLBACK.get_vocab_size() - 1), max_size=30))
def test_no_tokens_whatever_break_a_stream(token_ids: list[int]) -> None:
    text, whole = stream(token_ids), FALLBACK.decode(token_ids)
    assert text.replace("\ufffd", "").endswith(whole.rpartition("\ufffd")[2])


@pytest.mark.parametrize("pieces", [["B", b"\n\xf0", "B"], [" B", b"\n\x80\xff"], ["B", b"\xe4\xb8\xad\xf0\x9f", "B", b"\xf0"]])
def test_broken_bytes_behind_characters_that_were_shown_lose_no_answer(pieces: Pieces) -> None:
    text = stream(fallback_ids(pieces))
    assert text.count("B") == pieces.count("B") + pieces.count(" B")
    assert "\ufffd" in text


@pytest.mark.parametrize(("token_id", "shown"), [(4 + 0x80, "\ufffd"), (0, "")])
def test_tokens_that_never_become_a_character_are_not_held_for_ever(token_id: int, shown: str) -> None:
    detokenizer = Detokenizer(FALLBACK)
    detokenizer.add([token_id] * 600)
    assert detokenizer.text == shown * 512
    detokenizer.add([2])
    assert detokenizer.text == shown * 600 + "B"
