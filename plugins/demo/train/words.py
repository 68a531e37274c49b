"""Draws what the tower gives towards the words for it, so that the language model finds "circle" in a picture by the word alone.

To answer about "the circle", a layer of attention must match the embedding of the word with that of the tokens that show one. Learned from
answers alone, that comes late and all at once; asked for, it comes early.
"""

from __future__ import annotations

from itertools import product

import torch
from tokenizers import Tokenizer
from torch import Tensor, nn

from data import DIRECTIONS
from patch_heads import IGNORED
from scenes import COLOURS, KINDS

SHARPNESS = 12.0


class Words:
    """The tokens of the words for kinds, colours and directions, as they stand in a question and as they begin an answer."""

    def __init__(self, tokenizer: Tokenizer) -> None:
        said = {"kind": KINDS, "colour": COLOURS, "direction": DIRECTIONS[1:]}
        self.tokens = {
            name: [torch.tensor([tokenizer.token_to_id(f"{space}{word}") for word in words]) for space in ("Ġ", "")]
            for name, words in said.items()
            if all(tokenizer.token_to_id(f"{space}{word}") is not None for word in words for space in ("Ġ", ""))
        }

    def loss(self, projected: Tensor, tables: tuple[Tensor, ...], labels: dict[str, Tensor], per_token: int) -> Tensor:
        """Returns how far the tokens of pictures are from the words for what they show.

        Args:
            projected: (num_tokens, hidden_size): what stands in the prompt for items.
            tables: Embeddings and head of the language model, each (vocab_size, hidden_size).
            labels: Those of the patches.
            per_token: Patches in each token.
        """
        total = projected.new_zeros((), dtype=torch.float32)
        shown = nn.functional.normalize(projected.float(), dim=-1)
        for name, spelled in self.tokens.items():
            if name not in labels:
                continue
            most = labels[name].view(-1, per_token).max(1).values
            wanted = torch.where(most > 0, most - 1, IGNORED)
            if not bool((wanted != IGNORED).any()):
                continue
            for table, tokens in product(tables, spelled):
                words = nn.functional.normalize(table[tokens].float(), dim=-1)
                total = total + nn.functional.cross_entropy(SHARPNESS * shown @ words.T, wanted, ignore_index=IGNORED)
        return total
