"""What training asks of a family of models: how it looks at pictures and clips, and which files its checkpoint has."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from itertools import groupby
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from tokenizers import Tokenizer
from torch import Tensor, nn
from transformers import AttentionInterface, AttentionMaskInterface, PretrainedConfig
from transformers.integrations.sdpa_attention import sdpa_attention_forward
from transformers.masking_utils import sdpa_mask

from data import Item

MEAN = (0.5, 0.5, 0.5)
STD = (0.25, 0.25, 0.25)
MAX_LENGTH = 2048
PAD, BOS, EOS, IMAGE, SYSTEM, USER, ASSISTANT = range(7)
"""The first special tokens of every family."""
ATTENTION = "float32_sdpa"
"""Training runs in bfloat16, but attention in float32: its backward pass is five times faster so on the CPU."""
HIDDEN_SIZE = 192
"""Of towers and language models alike."""
TEXT = {
    "hidden_size": HIDDEN_SIZE,
    "intermediate_size": 384,
    "num_hidden_layers": 4,
    "num_attention_heads": 6,
    "num_key_value_heads": 6,
    "max_position_embeddings": MAX_LENGTH,
    "rms_norm_eps": 1e-6,
    "bos_token_id": BOS,
    "eos_token_id": EOS,
    "pad_token_id": PAD,
    "tie_word_embeddings": False,
}
"""The size of the language model, by the names that all configurations share."""


class Placed(NamedTuple):
    """An item as tokens of a prompt.

    Attributes:
        tokens: Token ids.
        positions: int64 (3, num_tokens): along time, height and width; all alike where a family has one axis.
        next: The position of what follows.
        steps: For each token the step of time that it shows, -1 where it shows nothing.
    """

    tokens: tuple[int, ...]
    positions: NDArray[np.int64]
    next: int
    steps: NDArray[np.int64]


class Reading(NamedTuple):
    """Hidden states of the language model, each (num_rows, length, hidden_size).

    Attributes:
        last: What the head reads.
        halfway: After half of the layers.
        later: A layer later.
    """

    last: Tensor
    halfway: Tensor
    later: Tensor


class Family(ABC):
    """A family of models.

    Attributes:
        name: The checkpoint's name.
        architecture: The name of its class in transformers.
        special: The special tokens; ids count from 0.
        vocab_size: Tokens in all.
        media_tokens: The tokens that stand for what the tower gives.
        patches_per_token: How many patches share a token.
        image: What stands for a picture in a chat.
        video: What stands for a clip in a chat, empty where the family takes none.
        label_sizes: What the tower is taught to tell of each patch.
        pictures: Which shards have its pictures.
    """

    name: str
    architecture: str
    special: tuple[str, ...]
    vocab_size: int
    media_tokens: tuple[int, ...]
    patches_per_token: int
    image: str
    video: str = ""
    label_sizes: dict[str, int]
    pictures: str

    @abstractmethod
    def config(self) -> PretrainedConfig:
        """Returns the configuration of the model."""

    @abstractmethod
    def new_tower(self) -> nn.Module:
        """Returns a fresh vision tower."""

    @abstractmethod
    def new_model(self) -> Any:
        """Returns a fresh model, with `initializer_range` so large that training starts quickly."""

    @abstractmethod
    def tower_of(self, model: Any) -> nn.Module:
        """Returns the vision tower of a model."""

    @abstractmethod
    def look(self, tower: Any, items: Sequence[Item]) -> Tensor:
        """Returns features (num_patches, hidden_size) of all items, one item behind another."""

    @abstractmethod
    def project(self, model: Any, features: Tensor) -> Tensor:
        """Returns embeddings (num_tokens, hidden_size) from what `look` returned."""

    @abstractmethod
    def read(self, model: Any, embeds: Tensor, mask: Tensor, position_ids: Tensor) -> Reading:
        """Runs the language model; `position_ids` is (3, num_rows, length)."""

    @abstractmethod
    def place(self, item: Item, start: int) -> Placed:
        """Returns the tokens of an item that starts at a position."""

    @abstractmethod
    def arrange(self, labels: NDArray[np.int64]) -> NDArray[np.int64]:
        """Returns labels (rows, columns) of patches in one row, in the order of `look`."""

    @abstractmethod
    def files(self) -> dict[str, dict[str, object]]:
        """Returns the contents of the processor files by their names."""

    def start_tower(self, tower: Any, folder: Path) -> None:  # noqa: B027 - a family may have nothing to start from
        """Takes over what fits from the tower of another family's checkpoint; by default nothing."""

    def start_language(self, model: Any, tokenizer: Tokenizer, folder: Path) -> None:  # noqa: B027
        """Takes over what fits from the language model of another family's checkpoint; by default nothing."""


def position_along(length: int, start: int) -> NDArray[np.int64]:
    """Returns the positions of text: int64 (3, length), the same on every axis."""
    return np.broadcast_to(np.arange(start, start + length), (3, length))


def run_language_model(inner: Any, embeds: Tensor, mask: Tensor, position_ids: Tensor) -> Reading:
    """Runs a language model of transformers without a cache."""
    output = inner(inputs_embeds=embeds, attention_mask=mask, position_ids=position_ids, use_cache=False, output_hidden_states=True)
    half = len(output.hidden_states) // 2
    return Reading(output.last_hidden_state, output.hidden_states[half], output.hidden_states[half + 1])


def normalise(pixels: Tensor) -> Tensor:
    """Returns float32 pixels as towers take them, from uint8 with channels last."""
    return (pixels.float() / 255 - torch.tensor(MEAN)) / torch.tensor(STD)


def float32_attention(
    module: nn.Module,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attention_mask: Tensor | None,
    chunk_lengths: Sequence[int] = (),
    **options: Any,
) -> Any:
    """Calls transformers' attention in float32; the arguments are its own.

    `chunk_lengths` cuts one long row into chunks that do not see one another: neighbours of one length are a batch.
    """
    with torch.autocast("cpu", enabled=False):
        query, key, value = query.float(), key.float(), value.float()
        if not chunk_lengths:
            return sdpa_attention_forward(module, query, key, value, attention_mask, **options)
        found, start = [], 0
        for length, run in groupby(chunk_lengths):
            count = len(list(run))
            stop = start + count * length
            chunks = [part[0, :, start:stop].reshape(len(part[0]), count, length, -1).transpose(0, 1) for part in (query, key, value)]
            found.append(sdpa_attention_forward(module, *chunks, None, **options)[0].flatten(0, 1))
            start = stop
        return torch.cat(found)[None], None


AttentionInterface.register(ATTENTION, float32_attention)
AttentionMaskInterface.register(ATTENTION, sdpa_mask)
