"""What a question's words point at in pictures and clips: the language model learns to look it up where the word stands.

Answers alone teach this slowly: "Is the circle above the star?" is right half of the time without a look. A head that reads, off the
hidden state at the word "circle", how many circles there are and where the only one lies, makes the model find them.
The head is scaffolding, as those of the vision tower are.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from clips import Actor
from data import DIRECTIONS, Film, Item, Picture
from patch_heads import IGNORED
from scenes import COLOURS, KINDS, MAX_OBJECTS, Shape

_NAMED = re.compile(rf"\b(?:(?P<colour>{'|'.join(COLOURS)})\b ?)?(?P<kind>{'|'.join(KINDS)})?(?=(?:s|es)?\b)", re.IGNORECASE)
MENTION_SIZES = {
    "number in the first": MAX_OBJECTS + 1,
    "number in the second": MAX_OBJECTS + 1,
    "kind": len(KINDS),
    "colour": len(COLOURS),
    "column": MAX_OBJECTS,
    "row": MAX_OBJECTS,
    "last colour": len(COLOURS),
    "direction": len(DIRECTIONS),
    "comes late": 2,
}
"""What each mention should tell: how many such objects each item has; of the only one in the first, what it is, where, and what it does."""

COMPARED_SIZES = {"below the one before": 2, "right of the one before": 2}
"""What a mention of an only object should tell besides, a layer later, where another one was mentioned before."""


@dataclass(frozen=True, slots=True)
class Mention:
    """Words of a question that mean objects.

    Attributes:
        end: Where they end, in characters.
        labels: The right value for each of `MENTION_SIZES`, then for each of `COMPARED_SIZES`; `IGNORED` where there is none.
    """

    end: int
    labels: tuple[int, ...]


def mentions(text: str, items: Sequence[Item]) -> list[Mention]:
    """Returns what a question mentions, about one item or two."""
    found: list[Mention] = []
    before: Shape | None = None
    for match in _NAMED.finditer(text):
        colour, kind = (word and word.lower() for word in match.group("colour", "kind"))
        if kind or colour:
            meant = [_meant(item, kind, colour) for item in items]
            told = {f"number in the {name}": len(those) for name, those in zip(("first", "second"), meant, strict=False)}
            only = None
            if len(meant[0]) == 1 and isinstance(items[0], Picture):
                only = items[0].shapes[meant[0][0]]
                told |= _of_picture(items[0], only) | _compared(only, before)
            elif len(meant[0]) == 1 and isinstance(items[0], Film):
                told |= _of_actor(items[0].actors[meant[0][0]])
            before = only
            labels = tuple(told.get(name, IGNORED) for name in (*MENTION_SIZES, *COMPARED_SIZES))
            found.append(Mention(match.end("kind" if kind else "colour"), labels))
    return found


def _meant(item: Item, kind: str | None, colour: str | None) -> list[int]:
    """Returns which objects of an item some words mean; those of a clip have two colours."""
    things: list[tuple[str, tuple[str, ...]]]
    if isinstance(item, Picture):
        things = [(shape.kind, (shape.colour,)) for shape in item.shapes]
    else:
        things = [(actor.kind, actor.colours) for actor in item.actors]
    return [i for i, (of_kind, colours) in enumerate(things) if kind in (None, of_kind) and (colour is None or colour in colours)]


def _of_picture(picture: Picture, shape: Shape) -> dict[str, int]:
    row = sorted(s.y for s in picture.shapes).index(shape.y)
    return {"kind": KINDS.index(shape.kind), "colour": COLOURS.index(shape.colour), "column": picture.shapes.index(shape), "row": row}


def _compared(shape: Shape, before: Shape | None) -> dict[str, int]:
    if before is None or shape == before:
        return {}
    return {"below the one before": int(shape.y > before.y), "right of the one before": int(shape.x > before.x)}


def _of_actor(actor: Actor) -> dict[str, int]:
    first, last = (COLOURS.index(colour) for colour in actor.colours)
    does = {"direction": DIRECTIONS.index(actor.direction), "comes late": int(actor.appears_at > 0)}
    return {"kind": KINDS.index(actor.kind), "colour": first, "last colour": last, **does}


class MentionHeads(nn.Module):
    """Reads the labels off the hidden states at mentions."""

    def __init__(self, hidden_size: int) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(hidden_size)
        self.read = nn.Linear(hidden_size, sum(MENTION_SIZES.values()))
        self.norm_compared = nn.LayerNorm(hidden_size)
        self.read_compared = nn.Linear(hidden_size, sum(COMPARED_SIZES.values()))

    def loss(self, halfway: Tensor, later: Tensor, labels: Tensor) -> Tensor:
        """Returns the mean of the cross entropies.

        Args:
            halfway: Hidden states (num_mentions, hidden_size) halfway through the language model.
            later: The same a layer later.
            labels: int64 (num_mentions, num_labels).
        """
        logits = self.read(self.norm(halfway.float())).split(list(MENTION_SIZES.values()), -1)
        compared = self.read_compared(self.norm_compared(later.float())).split(list(COMPARED_SIZES.values()), -1)
        total = labels.new_zeros((), dtype=torch.float32)
        for values, wanted in zip((*logits, *compared), labels.unbind(1), strict=True):
            if bool((wanted != IGNORED).any()):
                total = total + nn.functional.cross_entropy(values, wanted, ignore_index=IGNORED)
        return total / len(MENTION_SIZES)
