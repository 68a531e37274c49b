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
from tokenizers import Tokenizer
from torch import Tensor

from build import ASSISTANT, BOS, EOS, IMAGE, NUM_PATCHES, PAD, SYSTEM, USER
from data import IGNORED, Picture
from questions import CHAT, SYSTEM_PROMPTS, WHOLE, Question

Encode = Callable[[str], tuple[int, ...]]
PICTURE_TOKENS = (IMAGE,) * NUM_PATCHES
LEADS = (("First picture: ", " Second picture: "), ("", " and "), ("Picture 1: ", " Picture 2: "), ("First: ", " Second: "))


@dataclass(slots=True)
class Row:
    """One row under construction.

    Attributes:
        ids: Token ids.
        branches: For each token the branch that it belongs to, 0 for the shared beginning.
        positions: For each token its position in its conversation.
        asked: For each token the number of the question whose answer it is part of, -1 for none.
        kinds: The kind of each question.
        pictures: The pictures, in the order of their tokens.
    """

    ids: list[int] = field(default_factory=list)
    branches: list[int] = field(default_factory=list)
    positions: list[int] = field(default_factory=list)
    asked: list[int] = field(default_factory=list)
    kinds: list[str] = field(default_factory=list)
    pictures: list[Picture] = field(default_factory=list)
    _branch: int = 0
    _shared: int = 0
    _next: int = 0

    def add(self, tokens: tuple[int, ...], question: int = -1) -> None:
        """Appends tokens to the branch at hand."""
        self.ids += tokens
        self.branches += [self._branch] * len(tokens)
        self.positions += range(self._next, self._next + len(tokens))
        self.asked += [question] * len(tokens)
        self._next += len(tokens)

    def fork(self) -> None:
        """Starts another branch after the shared beginning."""
        if self._branch == 0:
            self._shared = self._next
        self._branch += 1
        self._next = self._shared

    def show(self, picture: Picture) -> None:
        """Appends a picture's tokens."""
        self.pictures.append(picture)
        self.add(PICTURE_TOKENS)

    def answer(self, question: Question, encode: Encode) -> None:
        """Appends the assistant's turn."""
        self.add((ASSISTANT,))
        self.add((*encode(question.answer), EOS), len(self.kinds))
        self.kinds.append(question.kind)


def encoder(tokenizer: Tokenizer) -> Encode:
    """Returns a function that remembers the tokens of each text."""

    @lru_cache(maxsize=200_000)
    def encode(text: str) -> tuple[int, ...]:
        return tuple(tokenizer.encode(text, add_special_tokens=False).ids)

    return encode


def row_about_one(rng: np.random.Generator, picture: Picture, questions: list[Question], encode: Encode) -> Row:
    """Packs questions about one picture, in one of the ways in which people show one."""
    row = _opened(rng, encode)
    style = rng.random()
    if style < 0.1:  # the question stands before the picture
        row.add(encode(questions[0].text))
        row.show(picture)
        row.answer(questions[0], encode)
        questions = questions[1:]
    else:
        row.show(picture)
    _branches(rng, row, questions, encode, opened=style >= 0.1)
    return row


def row_about_two(rng: np.random.Generator, pictures: tuple[Picture, Picture], questions: list[Question], encode: Encode) -> Row:
    """Packs questions about two pictures of one message."""
    row = _opened(rng, encode)
    leads = LEADS[int(rng.integers(len(LEADS)))] if rng.random() < 0.25 else ("", "")
    for lead, picture in zip(leads, pictures, strict=True):
        row.add(encode(lead))
        row.show(picture)
    _branches(rng, row, questions, encode, opened=True)
    return row


def row_of_turns(
    rng: np.random.Generator, pictures: tuple[Picture, Picture], questions: tuple[list[Question], list[Question]], encode: Encode
) -> Row:
    """Packs a conversation in which a second picture follows later: questions are about the latest one."""
    row = _opened(rng, encode)
    row.show(pictures[0])
    row.add(encode(questions[0][0].text))
    row.answer(questions[0][0], encode)
    row.add((USER,))
    row.show(pictures[1])
    _branches(rng, row, questions[1], encode, opened=True)
    return row


def row_of_chat(rng: np.random.Generator, encode: Encode) -> Row:
    """Packs talk without a picture."""
    row = Row()
    row.add((BOS, USER))
    chosen = [Question("chat", *CHAT[int(i)]) for i in rng.choice(len(CHAT), 6, replace=False)]
    about = WHOLE[int(rng.integers(len(WHOLE)))].format(image="picture")
    _branches(rng, row, [*chosen, Question("chat", about, "There is no picture.")], encode, opened=True)
    return row


def _opened(rng: np.random.Generator, encode: Encode) -> Row:
    row = Row()
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
        row.add(encode(question.text))
        row.answer(question, encode)
        left -= 1


@dataclass(frozen=True, slots=True)
class Batch:
    """Rows of one length.

    Attributes:
        input_ids: int64 (num_rows, length).
        position_ids: int64 (num_rows, length).
        mask: bool (num_rows, 1, length, length), true where a token may look.
        labels: int64 (num_rows, length): the token that should follow, `IGNORED` where nothing is asked.
        asked: int64 (num_rows, length): number within the batch of the question that a label belongs to.
        kinds: The kind of each question of the batch.
        pictures: All pictures, in the order of their tokens.
    """

    input_ids: Tensor
    position_ids: Tensor
    mask: Tensor
    labels: Tensor
    asked: Tensor
    kinds: list[str]
    pictures: list[Picture]


def collate(rows: list[Row]) -> Batch:
    """Pads rows to one length and builds their masks."""
    length = max(len(row.ids) for row in rows)
    ids, branches, positions, asked = (np.full((len(rows), length), fill, np.int64) for fill in (PAD, -1, 0, -1))
    kinds: list[str] = []
    for i, row in enumerate(rows):
        n = len(row.ids)
        ids[i, :n], branches[i, :n], positions[i, :n] = row.ids, row.branches, row.positions
        asked[i, :n] = [q + len(kinds) if q >= 0 else -1 for q in row.asked]
        kinds += row.kinds
    sees = (branches[:, None, :] == 0) | (branches[:, None, :] == branches[:, :, None])
    sees &= np.tri(length, dtype=bool)
    follows = np.concatenate([asked[:, 1:], np.full((len(rows), 1), -1)], 1)
    labels = np.where(follows >= 0, np.roll(ids, -1, 1), IGNORED)
    return Batch(
        input_ids=torch.from_numpy(ids),
        position_ids=torch.from_numpy(positions),
        mask=torch.from_numpy(sees[:, None]),
        labels=torch.from_numpy(labels),
        asked=torch.from_numpy(follows),
        kinds=kinds,
        pictures=[picture for row in rows for picture in row.pictures],
    )
