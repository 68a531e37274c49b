"""Prompt embeddings inside a conversation: parts that stand for finished embeddings instead of text.

While a conversation is rendered a marker stands for each of them; among the token ids each position of one is a negative id. Once the
prompt is processed they become items that need no encoder, and the ids are filled with 0.
"""

from __future__ import annotations

import dataclasses
import re
import secrets
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from inset.errors import PlaceholderError
from inset.identity import framed_sha256
from inset.inputs import ItemPlan, MultiModalFeature, PlaceholderRange

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from inset.inputs import ProcessedPrompt
    from inset.processing.tokenizer import SpecialTokensAround, Tokenizer

__all__ = ["PROMPT", "MarkingTokenizer", "PlacedPrompt", "expand_prompt_parts", "place_prompt_parts"]

PROMPT: Final = "prompt"
"""The modality of these parts."""

_FILLER: Final = 0


class MarkingTokenizer:
    """A tokenizer for one conversation, which turns markers into negative ids: -1 for the first part, -2 for the second.

    Text before and behind a marker is tokenised apart, because embeddings stand between the two.
    """

    def __init__(self, tokenizer: Tokenizer) -> None:
        self._tokenizer = tokenizer
        self._nonce = secrets.token_hex(8)
        self._pattern = re.compile(f"q{self._nonce}n(\\d+)q")

    def marker(self, index: int) -> str:
        """Returns the text that stands for one part; nobody can guess it."""
        return f"q{self._nonce}n{index}q"

    def without_markers(self, text: str) -> str:
        """Returns a rendered prompt as it is shown."""
        return self._pattern.sub("", text)

    def check(self, token_ids: Iterable[int], num_parts: int) -> None:
        """Lets token ids pass that have each part once.

        Raises:
            PlaceholderError: The chat template drops or doubles a part.
        """
        found = sorted(-1 - token_id for token_id in token_ids if token_id < 0)
        if found != list(range(num_parts)):
            raise PlaceholderError(
                f"The chat template shows {len(found)} of the {num_parts} prompt_embeds part(s) of this conversation.", stage="parse"
            )

    @property
    def special_tokens_around(self) -> SpecialTokensAround:
        """As the tokenizer's own."""
        return self._tokenizer.special_tokens_around

    @property
    def unknown_token_id(self) -> int | None:
        """As the tokenizer's own."""
        return self._tokenizer.unknown_token_id

    def encode(self, text: str, add_special_tokens: bool = False) -> list[int]:
        """Returns the token ids of a text with markers."""
        token_ids: list[int] = []
        for position, piece in enumerate(self._pattern.split(text)):
            token_ids += [-1 - int(piece)] if position % 2 else self._tokenizer.encode(piece, add_special_tokens)
        return token_ids

    def encode_as_text(self, text: str) -> list[int]:
        """As the tokenizer's own."""
        return self._tokenizer.encode_as_text(text)

    def added_ids_in(self, token_ids: Iterable[int]) -> list[int]:
        """As the tokenizer's own; a marker is no token."""
        return self._tokenizer.added_ids_in(token_ids)


class PlacedPrompt(NamedTuple):
    """A processed prompt whose prompt embeddings have become items.

    Attributes:
        prompt: With no negative ids left.
        features: One item per part.
    """

    prompt: ProcessedPrompt
    features: list[MultiModalFeature]


def expand_prompt_parts(token_ids: Sequence[int], embeds: Sequence[NDArray[np.float32]]) -> Sequence[int]:
    """Returns token ids in which each part has as many positions as it has rows."""
    if not embeds:
        return token_ids
    expanded: list[int] = []
    for token_id in token_ids:
        expanded += [token_id] * (1 if token_id >= 0 else len(embeds[-1 - token_id]))
    return expanded


def place_prompt_parts(prompt: ProcessedPrompt, embeds: Sequence[np.ndarray[Any, Any]]) -> PlacedPrompt:
    """Returns the prompt with its parts as items, ``(num_embeds, hidden_size)`` float32 each."""
    if not embeds:
        return PlacedPrompt(prompt, [])
    token_ids = list(prompt.prompt_token_ids)
    features = []
    for index, rows in enumerate(embeds):
        plan = ItemPlan(num_tokens=len(rows), num_embeds=len(rows), tensor_bytes=rows.nbytes, peak_bytes=rows.nbytes, is_embedding=True)
        features.append(
            MultiModalFeature(
                modality=PROMPT,
                item_index=index,
                mm_hash=framed_sha256(b"prompt-embeds", str(rows.shape).encode(), rows.tobytes(), (prompt.cache_salt or "").encode()),
                placeholder=PlaceholderRange(token_ids.index(-1 - index), len(rows)),
                data={"embeds": rows},
                plan=plan,
                is_embedding=True,
            )
        )
    filled = [token_id if token_id >= 0 else _FILLER for token_id in token_ids]
    return PlacedPrompt(dataclasses.replace(prompt, prompt_token_ids=filled), features)
