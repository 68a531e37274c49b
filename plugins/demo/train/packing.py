"""Packs many questions about the same pictures into one row of tokens, so that a picture is paid for once.

A row is a shared beginning (the pictures) and branches that see the beginning and themselves, never each other: to the model each
branch is the conversation that a user would have. Some branches hold several turns.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import lru_cache

import numpy as np
import torch
from numpy.typing import NDArray
from tokenizers import Tokenizer
from torch import Tensor

from data import Item, Picture
from families.base import ASSISTANT, BOS, EOS, PAD, SYSTEM, USER, Placed, position_along
from mentions import COMPARED_SIZES, MENTION_SIZES, Mention, mentions
from patch_heads import IGNORED
from questions import CHAT, SYSTEM_PROMPTS, WHOLE, Question

Place = Callable[[Item, int], Placed]
LEADS = (("First picture: ", " Second picture: "), ("", " and "), ("Picture 1: ", " Picture 2: "), ("First: ", " Second: "))


class Encode:
    """Turns texts into tokens, and remembers those of each text."""

    def __init__(self, tokenizer: Tokenizer) -> None:
        self._encode = lru_cache(maxsize=200_000)(lambda text: _tokens(tokenizer, text))

    def __call__(self, text: str) -> tuple[int, ...]:
        """Returns token ids."""
        return self._encode(text)[0]

    def ends(self, text: str) -> tuple[int, ...]:
        """Returns for each token where it ends, in characters."""
        return self._encode(text)[1]


def _tokens(tokenizer: Tokenizer, text: str) -> tuple[tuple[int, ...], tuple[int, ...]]:
    encoding = tokenizer.encode(text, add_special_tokens=False)
    return tuple(encoding.ids), tuple(end for _, end in encoding.offsets)


@dataclass(slots=True)
class Row:
    """One row under construction.

    Attributes:
        place: How a family puts an item into a prompt.
        ids: Token ids.
        branches: For each token the branch that it belongs to, 0 for the shared beginning.
        positions: For some tokens each int64 (3, num_tokens): their positions in their conversation.
        asked: For each token the number of the question whose answer it is part of, -1 for none.
        kinds: The kind of each question.
        items: The pictures and clips, in the order of their tokens.
        mentions: What questions mention, each with the index of the token that ends it.
        whereabouts: For each token of an item, the step and the item, as `whereabouts.SIZES`.
    """

    place: Place
    ids: list[int] = field(default_factory=list)
    branches: list[int] = field(default_factory=list)
    positions: list[NDArray[np.int64]] = field(default_factory=list)
    asked: list[int] = field(default_factory=list)
    kinds: list[str] = field(default_factory=list)
    items: list[Item] = field(default_factory=list)
    mentions: list[tuple[int, Mention]] = field(default_factory=list)
    whereabouts: list[tuple[int, int]] = field(default_factory=list)
    is_of_two_turns: bool = False
    _branch: int = 0
    _shared: int = 0
    _next: int = 0

    def add(self, tokens: tuple[int, ...], question: int = -1) -> None:
        """Appends text to the branch at hand."""
        nothing = np.full(len(tokens), -1, np.int64)
        self._add(Placed(tokens, position_along(len(tokens), self._next), self._next + len(tokens), nothing), question)

    def show(self, item: Item) -> None:
        """Appends a picture or a clip."""
        self.items.append(item)
        self._add(self.place(item, self._next), -1)

    def _add(self, placed: Placed, question: int) -> None:
        self.ids += placed.tokens
        self.branches += [self._branch] * len(placed.tokens)
        self.positions.append(placed.positions)
        self.whereabouts += [(int(step), min(len(self.items), 2) - 1) for step in placed.steps if step >= 0]
        self.asked += [question] * len(placed.tokens)
        self._next = placed.next

    def fork(self) -> None:
        """Starts another branch after the shared beginning."""
        if self._branch == 0:
            self._shared = self._next
        self._branch += 1
        self._next = self._shared

    def ask(self, question: Question, encode: Encode) -> None:
        """Appends a question; what it mentions is looked up in the items shown, unless these are of two turns."""
        if self.items and not self.is_of_two_turns:
            ends = encode.ends(question.text)
            for mention in mentions(question.text, self.items):
                self.mentions.append((len(self.ids) + next(i for i, end in enumerate(ends) if end >= mention.end), mention))
        self.add(encode(question.text))

    def answer(self, question: Question, encode: Encode) -> None:
        """Appends the assistant's turn."""
        self.add((ASSISTANT,))
        self.add((*encode(question.answer), EOS), len(self.kinds))
        self.kinds.append(question.kind)


def row_about_one(rng: np.random.Generator, item: Item, questions: list[Question], encode: Encode, place: Place) -> Row:
    """Packs questions about one picture or clip, in one of the ways in which people show one."""
    row = _opened(rng, encode, place)
    style = rng.random()
    if style < 0.1:  # the question stands before the picture
        row.add(encode(questions[0].text))
        row.show(item)
        row.answer(questions[0], encode)
        questions = questions[1:]
    else:
        row.show(item)
    _branches(rng, row, questions, encode, opened=style >= 0.1)
    return row


def row_about_two(
    rng: np.random.Generator, pictures: tuple[Picture, Picture], questions: list[Question], encode: Encode, place: Place
) -> Row:
    """Packs questions about two pictures of one message."""
    row = _opened(rng, encode, place)
    leads = LEADS[int(rng.integers(len(LEADS)))] if rng.random() < 0.25 else ("", "")
    for lead, picture in zip(leads, pictures, strict=True):
        row.add(encode(lead))
        row.show(picture)
    _branches(rng, row, questions, encode, opened=True)
    return row


def row_of_turns(
    rng: np.random.Generator,
    pictures: tuple[Picture, Picture],
    questions: tuple[list[Question], list[Question]],
    encode: Encode,
    place: Place,
) -> Row:
    """Packs a conversation in which a second picture follows later: questions are about the latest one."""
    row = _opened(rng, encode, place)
    row.is_of_two_turns = True
    row.show(pictures[0])
    row.ask(questions[0][0], encode)
    row.answer(questions[0][0], encode)
    row.add((USER,))
    row.show(pictures[1])
    _branches(rng, row, questions[1], encode, opened=True)
    return row


def row_of_chat(rng: np.random.Generator, encode: Encode, place: Place) -> Row:
    """Packs talk without a picture."""
    row = Row(place)
    row.add((BOS, USER))
    chosen = [Question("chat", *CHAT[int(i)]) for i in rng.choice(len(CHAT), 6, replace=False)]
    about = WHOLE[int(rng.integers(len(WHOLE)))].format(image="picture")
    _branches(rng, row, [*chosen, Question("chat", about, "There is no picture.")], encode, opened=True)
    return row


def _opened(rng: np.random.Generator, encode: Encode, place: Place) -> Row:
    row = Row(place)
    row.add((BOS,))
    if rng.random() < 0.1:
        row.add((SYSTEM, *encode(SYSTEM_PROMPTS[int(rng.integers(len(SYSTEM_PROMPTS)))])))
    row.add((USER,))
    if rng.random() < 0.04:
        greeting = CHAT[int(rng.integers(len(CHAT)))]
        row.add(encode(greeting[0]))
        row.answer(Question("chat", *greeting), encode)
        row.add((USER,))
    return row


def _branches(rng: np.random.Generator, row: Row, questions: list[Question], encode: Encode, *, opened: bool) -> None:
    """Appends the questions as branches of one to three turns; `opened` says that the shared beginning ends inside a user's turn."""
    left = 0
    for question in questions:
        if left == 0:
            left = int(rng.choice(3, p=(0.7, 0.2, 0.1))) + 1
            row.fork()
            if not opened:
                row.add((USER,))
        else:
            row.add((USER,))
        row.ask(question, encode)
        row.answer(question, encode)
        left -= 1


@dataclass(frozen=True, slots=True)
class Batch:
    """Rows of one length.

    Attributes:
        input_ids: int64 (num_rows, length).
        position_ids: int64 (3, num_rows, length).
        mask: bool (num_rows, 1, length, length), true where a token may look.
        labels: int64 (num_rows, length): the token that should follow, `IGNORED` where nothing is asked.
        asked: int64 (num_rows, length): number within the batch of the question that a label belongs to.
        kinds: The kind of each question of the batch.
        mentioned: bool (num_rows, length): where a mention ends.
        mention_labels: int64 (num_mentions, num_labels), as `mentions.MENTION_SIZES`, in the order of rows and tokens.
        whereabouts: int64 (num_tokens, 2): the step and the item of each token of an item.
        items: All pictures and clips, in the order of their tokens.
        before: For each item the one that its row shows before it, None for a first one.
    """

    input_ids: Tensor
    position_ids: Tensor
    mask: Tensor
    labels: Tensor
    asked: Tensor
    kinds: list[str]
    mentioned: Tensor
    mention_labels: Tensor
    whereabouts: Tensor
    items: list[Item]
    before: list[Item | None]


def collate(rows: list[Row]) -> Batch:
    """Pads rows to one length and builds their masks."""
    length = max(len(row.ids) for row in rows)
    ids, branches, asked = (np.full((len(rows), length), fill, np.int64) for fill in (PAD, -1, -1))
    positions = np.zeros((3, len(rows), length), np.int64)
    kinds: list[str] = []
    for i, row in enumerate(rows):
        n = len(row.ids)
        ids[i, :n], branches[i, :n], positions[:, i, :n] = row.ids, row.branches, np.concatenate(row.positions, 1)
        asked[i, :n] = [q + len(kinds) if q >= 0 else -1 for q in row.asked]
        kinds += row.kinds
    sees = (branches[:, None, :] == 0) | (branches[:, None, :] == branches[:, :, None])
    sees &= np.tri(length, dtype=bool)
    follows = np.concatenate([asked[:, 1:], np.full((len(rows), 1), -1)], 1)
    labels = np.where(follows >= 0, np.roll(ids, -1, 1), IGNORED)
    mentioned = np.zeros((len(rows), length), bool)
    for i, row in enumerate(rows):
        mentioned[i, [index for index, _ in row.mentions]] = True
    told = [mention.labels for row in rows for _, mention in sorted(row.mentions, key=lambda found: found[0])]
    return Batch(
        input_ids=torch.from_numpy(ids),
        position_ids=torch.from_numpy(positions),
        mask=torch.from_numpy(sees[:, None]),
        labels=torch.from_numpy(labels),
        asked=torch.from_numpy(follows),
        kinds=kinds,
        mentioned=torch.from_numpy(mentioned),
        mention_labels=torch.tensor(told, dtype=torch.int64).view(-1, len(MENTION_SIZES) + len(COMPARED_SIZES)),
        whereabouts=torch.tensor([w for row in rows for w in row.whereabouts], dtype=torch.int64).view(-1, 2),
        items=[item for row in rows for item in row.items],
        before=[earlier for row in rows for earlier in (None, *row.items)[: len(row.items)]],
    )
