"""What a token of a picture or clip should know of itself: which step of its clip it shows, and which item it is part of.

"At first", "at the end" and "the second picture" are answered by the right tokens only once these know it. Answers alone teach it slowly: a
wrong time has the right shape, and often the right colour. The head is scaffolding, as those of mentions are.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

from clips import STEPS

SIZES = {"step": STEPS // 2, "item": 2}


class WhereaboutsHeads(nn.Module):
    """Reads the step and the item off the hidden states of the tokens of items."""

    def __init__(self, hidden_size: int) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(hidden_size)
        self.read = nn.Linear(hidden_size, sum(SIZES.values()))

    def loss(self, hidden: Tensor, labels: Tensor) -> Tensor:
        """Returns the mean cross entropy from hidden states (num_tokens, hidden_size) and int64 labels (num_tokens, 2)."""
        logits = self.read(self.norm(hidden.float())).split(list(SIZES.values()), -1)
        losses = [nn.functional.cross_entropy(values, wanted) for values, wanted in zip(logits, labels.unbind(1), strict=True)]
        return torch.stack(losses).mean()
