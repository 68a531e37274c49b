"""What a token of a clip, or of a second picture, should know of what came before it: that its object is new, or has turned, or has gone.

"What appears?" and "Same or different?" are answered by comparing. Answers alone teach that slowly: they say that something differs, and
never where. The head is scaffolding, as those of mentions are.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from clips import STEPS
from data import Film, Item, Picture
from patch_heads import IGNORED, Arrange

NEWS = ("known", "new", "gone", "turned")
Covered = NDArray[np.bool_]


def news_labels(items: Sequence[Item], before: Sequence[Item | None], arrange: Arrange, per_token: int) -> Tensor:
    """Returns int64 (num_tokens,): which of `NEWS` each token is, `IGNORED` where it shows nothing or has nothing to compare with.

    Args:
        items: Pictures and clips.
        before: For each the item that its row shows before it, None for the first.
        arrange: How a family puts patches into one row.
        per_token: Patches in each token.
    """
    parts: list[NDArray[np.int64]] = []
    for item, earlier in zip(items, before, strict=True):
        news = _of_film(item) if isinstance(item, Film) else _of_picture(item, earlier)
        parts += [_of_tokens(arrange(moment), per_token) for moment in news]
    return torch.from_numpy(np.concatenate(parts)) if parts else torch.empty(0, dtype=torch.int64)


def _of_picture(picture: Picture, earlier: Item | None) -> list[NDArray[np.int64]]:
    """Returns one map of patches: -1 for nothing, else the place in `NEWS`."""
    news = np.full(picture.patches.shape, -1, np.int64)
    if isinstance(earlier, Picture):
        seen = {(shape.kind, shape.colour) for shape in earlier.shapes}
        for number, shape in enumerate(picture.shapes, 1):
            news[picture.patches == number] = NEWS.index("known" if (shape.kind, shape.colour) in seen else "new")
    return [news]


def _of_film(film: Film) -> list[NDArray[np.int64]]:
    """Returns a map of patches for each two frames."""
    return [_of_frames(film, step) for step in range(0, STEPS, 2)]


def _of_frames(film: Film, step: int) -> NDArray[np.int64]:
    frames = film.patches[step : step + 2]
    news = np.full(frames.shape[1:], -1, np.int64)
    for number, actor in enumerate(film.actors, 1):
        there: Covered = (frames == number).any(0)
        if actor.disappears_at <= step + 1:
            before = film.patches[: int(actor.disappears_at)]
            news[(before == number).any(0)] = NEWS.index("gone")
        elif actor.turns_at <= step + 1:
            news[there] = NEWS.index("turned")
        else:
            news[there] = NEWS.index("new" if actor.appears_at > 0 else "known")
    return news


def _of_tokens(news: NDArray[np.int64], per_token: int) -> NDArray[np.int64]:
    """Returns what most tells of each token's patches: the last of `NEWS` that is among them."""
    most = news.reshape(-1, per_token).max(1)
    return np.where(most < 0, IGNORED, most)


class NewsHead(nn.Module):
    """Reads the news off the hidden states of the tokens of items."""

    def __init__(self, hidden_size: int) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(hidden_size)
        self.read = nn.Linear(hidden_size, len(NEWS))

    def loss(self, hidden: Tensor, labels: Tensor) -> Tensor:
        """Returns the mean cross entropy from hidden states (num_tokens, hidden_size) and int64 labels (num_tokens,)."""
        if not bool((labels != IGNORED).any()):
            return hidden.new_zeros((), dtype=torch.float32)
        return nn.functional.cross_entropy(self.read(self.norm(hidden.float())), labels, ignore_index=IGNORED)
