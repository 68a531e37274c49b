"""What becomes of the placeholders in a prompt: which tokens are replaced, or where tokens are inserted, and with what."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TypeAlias

__all__ = ["PlaceholderContent", "PromptInsertion", "PromptReplacement", "PromptUpdate"]


@dataclass(frozen=True, slots=True)
class PlaceholderContent:
    """The tokens that stand for one item.

    Example: two rows of two embeds with a newline token behind each are
    ``PlaceholderContent((7, 7, 9, 7, 7, 9), is_embed=((0, 2), (3, 5)))``.

    Attributes:
        token_ids: All of them, in order.
        is_embed: Those that receive an embedding, as runs (start, stop); None means all of them.
    """

    token_ids: Sequence[int]
    is_embed: tuple[tuple[int, int], ...] | None = None

    @property
    def num_embeds(self) -> int:
        """How many of the tokens receive an embedding."""
        return len(self.token_ids) if self.is_embed is None else sum(stop - start for start, stop in self.is_embed)


@dataclass(frozen=True, slots=True, kw_only=True)
class PromptReplacement:
    """Every occurrence of the target in the prompt is one item's place and is replaced by that item's tokens, in order.

    Attributes:
        modality: ``image``, ``video`` or ``audio``.
        target: The tokens of one unexpanded placeholder; never empty.
        contents: One entry per item of the modality, in request order.
    """

    modality: str
    target: Sequence[int]
    contents: Sequence[PlaceholderContent]


@dataclass(frozen=True, slots=True, kw_only=True)
class PromptInsertion:
    """All items' tokens are inserted behind the first occurrence of the target, which stays; for models whose prompts hold no marker.

    Attributes:
        modality: ``image``, ``video`` or ``audio``.
        target: The tokens to insert behind; empty inserts at the very start.
        contents: One entry per item of the modality, in request order.
    """

    modality: str
    target: Sequence[int]
    contents: Sequence[PlaceholderContent]


PromptUpdate: TypeAlias = PromptReplacement | PromptInsertion
