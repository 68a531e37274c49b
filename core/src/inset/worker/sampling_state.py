"""What choosing tokens needs to remember of one request."""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import NamedTuple

import torch

from inset.sampling_params import SamplingParams

__all__ = ["SamplingState", "SeenTokens"]


class SeenTokens(NamedTuple):
    """Which tokens a request holds.

    Attributes:
        in_prompt: ``(vocab_size,)`` bool.
        output_counts: ``(vocab_size,)`` float32: how often the answer holds each token.
    """

    in_prompt: torch.Tensor
    output_counts: torch.Tensor


class SamplingState:
    """Options, generator and token counts of one request.

    A request that comes back after preemption draws on where it stopped: one number belongs to each token of its answer.
    """

    def __init__(
        self,
        params: SamplingParams,
        *,
        seed: int | str,
        prompt_token_ids: Sequence[int],
        output_token_ids: Sequence[int] = (),
        eos_token_ids: Sequence[int] = (),
    ) -> None:
        self.params = params
        self.ending_token_ids = tuple(dict.fromkeys((*eos_token_ids, *params.stop_token_ids)))
        self.has_penalties = bool(params.presence_penalty or params.frequency_penalty or params.repetition_penalty != 1)
        self._prompt_token_ids = prompt_token_ids
        self._output_token_ids = list(output_token_ids)
        self._seen: SeenTokens | None = None
        self._generator = random.Random(str(seed))  # of a number, it would leave out the sign
        for _ in output_token_ids if not params.is_greedy else ():
            self._generator.random()

    @property
    def must_not_end(self) -> bool:
        """The next token may not be an end-of-sequence or stop token."""
        return len(self._output_token_ids) < self.params.min_tokens

    @property
    def needs_more_than_argmax(self) -> bool:
        """The next token is not simply the one with the largest logit, or log probabilities are asked for."""
        params = self.params
        return not params.is_greedy or self.has_penalties or self.must_not_end or bool(params.logit_bias) or params.logprobs is not None

    def draw(self) -> float:
        """Returns the next number of the request's generator, in [0, 1)."""
        return self._generator.random()

    def append(self, token_id: int) -> None:
        """Takes note of a token of the answer."""
        self._output_token_ids.append(token_id)
        if self._seen is not None:
            self._seen.output_counts[token_id] += 1

    def seen_tokens(self, vocab_size: int, device: torch.device) -> SeenTokens:
        """Returns which tokens prompt and answer hold; made on the first call, kept up to date by `append`."""
        if self._seen is None:
            prompt = torch.tensor([t for t in self._prompt_token_ids if t < vocab_size], dtype=torch.int64, device=device)
            output = torch.tensor(self._output_token_ids, dtype=torch.int64, device=device)
            in_prompt = torch.zeros(vocab_size, dtype=torch.bool, device=device).index_fill_(0, prompt, True)
            self._seen = SeenTokens(in_prompt, torch.bincount(output, minlength=vocab_size).float())
        return self._seen
