from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from inset.engine.prompt_parts import MarkingTokenizer, expand_prompt_parts, place_prompt_parts
from inset.errors import PlaceholderError
from inset.inputs import PlaceholderRange, ProcessedPrompt
from inset.processing.tokenizer import Tokenizer
from inset.testing.tiny_checkpoints import save_byte_tokenizer


@pytest.fixture(scope="module")
def tokenizer(tmp_path_factory: pytest.TempPathFactory) -> Tokenizer:
    folder: Path = tmp_path_factory.mktemp("tokenizer")
    save_byte_tokenizer(folder)
    return Tokenizer((folder / "tokenizer.json").read_text())


def rows(count: int) -> np.ndarray[tuple[int, int], np.dtype[np.float32]]:
    return np.full((count, 4), count, np.float32)


def test_marker_becomes_one_negative_id_between_the_tokens_around_it(tokenizer: Tokenizer) -> None:
    marking = MarkingTokenizer(tokenizer)
    text = f"ab{marking.marker(0)}c{marking.marker(1)}"
    assert marking.encode(text) == [*tokenizer.encode("ab"), -1, *tokenizer.encode("c"), -2]
    assert marking.without_markers(text) == "abc"


def test_markers_of_another_conversation_are_text(tokenizer: Tokenizer) -> None:
    marking, other = MarkingTokenizer(tokenizer), MarkingTokenizer(tokenizer)
    assert marking.encode(other.marker(0)) == tokenizer.encode(other.marker(0))


@pytest.mark.parametrize("token_ids", [[], [-1], [-1, -2, -2], [-1, -3]])
def test_template_that_drops_or_doubles_a_part_is_refused_with_both_numbers(tokenizer: Tokenizer, token_ids: list[int]) -> None:
    with pytest.raises(PlaceholderError, match=rf"shows {len(token_ids)} of the 2"):
        MarkingTokenizer(tokenizer).check(token_ids, 2)


def test_parts_become_items_where_they_stood() -> None:
    embeds = [rows(2), rows(3)]
    token_ids = expand_prompt_parts([7, -1, 8, -2], embeds)
    assert token_ids == [7, -1, -1, 8, -2, -2, -2]
    placed = place_prompt_parts(ProcessedPrompt(prompt_token_ids=token_ids), embeds)
    assert placed.prompt.prompt_token_ids == [7, 0, 0, 8, 0, 0, 0]
    assert [feature.placeholder for feature in placed.features] == [PlaceholderRange(1, 2), PlaceholderRange(4, 3)]
    assert all(feature.is_embedding for feature in placed.features)
    assert len({feature.mm_hash for feature in placed.features}) == 2


def test_a_salt_names_the_same_rows_differently() -> None:
    names = {
        place_prompt_parts(ProcessedPrompt(prompt_token_ids=[-1, -1], cache_salt=salt), [rows(2)]).features[0].mm_hash
        for salt in (None, "a", "b")
    }
    assert len(names) == 3


def test_prompt_without_parts_is_left_alone() -> None:
    prompt = ProcessedPrompt(prompt_token_ids=[1, 2])
    assert place_prompt_parts(prompt, []) == (prompt, [])
    assert expand_prompt_parts([1, 2], []) == [1, 2]
