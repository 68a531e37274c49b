"""Chooses the next token of every sequence from its logits."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, NamedTuple

import torch

from inset.sampling_params import SamplingParams
from inset.step import TokenLogprobs
from inset.worker.sampling_state import SamplingState

__all__ = ["SampledTokens", "sample"]

_LARGEST: Final = 1e38
"""Stands for infinity where one number is taken from another."""

_LEAST: Final = 1e-300
"""Stands for what is nearer to 0, where it is a divisor or has a logarithm."""


class SampledTokens(NamedTuple):
    """The next tokens, in the order of the rows.

    Attributes:
        token_ids: One per row.
        logprobs: One per row; None where not asked for.
    """

    token_ids: list[int]
    logprobs: list[TokenLogprobs | None]


def sample(logits: torch.Tensor, states: Sequence[SamplingState]) -> SampledTokens:
    """Returns the next token of each row.

    Order: bias and penalties, tokens that must not end the answer yet, greedy choice; for the others temperature, min-p, top-k, top-p,
    and one number drawn from the request's own generator, so that neighbours in the batch change nothing.
    Log probabilities are those of the model, before any option changed them.

    Args:
        logits: ``(num_rows, vocab_size)``; not changed.
        states: One per row.
    """
    if not any(state.needs_more_than_argmax for state in states):
        return SampledTokens(logits.argmax(-1).tolist(), [None] * len(states))
    adjusted = _adjust(logits.float(), states)
    token_ids = adjusted.argmax(-1)
    drawn = [row for row, state in enumerate(states) if not state.params.is_greedy]
    if drawn:
        rows = torch.tensor(drawn, device=logits.device)
        token_ids[rows] = _draw(adjusted[rows], [states[row] for row in drawn])
    return SampledTokens(token_ids.tolist(), _logprobs(logits, token_ids, states))


def _adjust(logits: torch.Tensor, states: Sequence[SamplingState]) -> torch.Tensor:
    """Returns logits with biases, penalties and forbidden endings."""
    logits = logits.clone()
    biased = [(row, token, bias) for row, s in enumerate(states) for token, bias in s.params.logit_bias.items() if token < logits.shape[1]]
    if biased:
        rows, tokens, biases = (torch.tensor(column, device=logits.device) for column in zip(*biased, strict=True))
        logits.index_put_((rows, tokens), biases.to(logits.dtype), accumulate=True)
    penalised = [row for row, state in enumerate(states) if state.has_penalties]
    if penalised:
        chosen = torch.tensor(penalised, device=logits.device)
        logits[chosen] = _penalise(logits[chosen], [states[row] for row in penalised])
    forbidden = [(row, t) for row, s in enumerate(states) if s.must_not_end for t in s.ending_token_ids if t < logits.shape[1]]
    if forbidden:
        rows, tokens = (torch.tensor(column, device=logits.device) for column in zip(*forbidden, strict=True))
        logits[rows, tokens] = float("-inf")
    return logits


def _penalise(logits: torch.Tensor, states: Sequence[SamplingState]) -> torch.Tensor:
    seen = [state.seen_tokens(logits.shape[1], logits.device) for state in states]
    counts = torch.stack([s.output_counts for s in seen])
    occurred = torch.stack([s.in_prompt for s in seen]) | (counts > 0)
    repetition = _column([s.params.repetition_penalty for s in states], logits)
    scaled = torch.where(logits > 0, logits / repetition, logits * repetition)
    logits = torch.where(occurred, scaled, logits)
    logits = logits - counts * _column([s.params.frequency_penalty for s in states], logits)
    return logits - (counts > 0) * _column([s.params.presence_penalty for s in states], logits)


def _draw(logits: torch.Tensor, states: Sequence[SamplingState]) -> torch.Tensor:
    """Returns one token per row, drawn in proportion to the probabilities that the options leave.

    Tokens stand in the order of their ids when the number is drawn, whatever the neighbours' options are: equal seeds give equal tokens.
    """
    params = [state.params for state in states]
    # Whatever a model or extreme options give, numbers come out of which exactly one token can be drawn: never one outside the vocabulary.
    logits = logits.double().nan_to_num(nan=-_LARGEST, posinf=_LARGEST, neginf=-_LARGEST)
    logits = (logits - logits.amax(-1, keepdim=True)) / _column([max(p.temperature, _LEAST) for p in params], logits)
    if any(p.min_p > 0 for p in params):
        floor = logits.amax(-1, keepdim=True) + _column([max(p.min_p, _LEAST) for p in params], logits).log()
        logits = logits.masked_fill(logits < floor, float("-inf"))
    cut = [row for row, p in enumerate(params) if p.top_p < 1 or 0 < p.top_k < logits.shape[1]]
    if cut:
        rows = torch.tensor(cut, device=logits.device)
        logits[rows] = _keep_most_likely(logits[rows], [params[row] for row in cut])
    sums = logits.softmax(-1).cumsum(-1)
    # Strictly below the last sum, so that rounding never picks a token without probability behind it.
    targets = sums[:, -1:] * _column([state.draw() for state in states], logits) * (1 - 2.0**-40)
    return torch.searchsorted(sums, targets, right=True)[:, 0]


def _keep_most_likely(logits: torch.Tensor, params: Sequence[SamplingParams]) -> torch.Tensor:
    """Returns logits in which top-k and then top-p have ruled out the others."""
    vocab_size = logits.shape[1]
    top_k = [min(p.top_k, vocab_size) if p.top_k > 0 else vocab_size for p in params]
    if max(top_k) < vocab_size:
        ordered, order = logits.topk(max(top_k))
    else:
        ordered, order = logits.sort(dim=-1, descending=True, stable=True)
    ranks = torch.arange(ordered.shape[1], device=logits.device)[None]
    ordered = ordered.masked_fill(ranks >= _column([float(k) for k in top_k], logits), float("-inf"))
    probs = ordered.softmax(-1)
    before = probs.cumsum(-1) - probs
    ordered = ordered.masked_fill(before >= _column([p.top_p for p in params], logits), float("-inf"))
    return torch.full_like(logits, float("-inf")).scatter_(-1, order, ordered)


def _column(values: Sequence[float], like: torch.Tensor) -> torch.Tensor:
    return torch.tensor(values, dtype=like.dtype, device=like.device)[:, None]


def _logprobs(logits: torch.Tensor, token_ids: torch.Tensor, states: Sequence[SamplingState]) -> list[TokenLogprobs | None]:
    answers: list[TokenLogprobs | None] = [None] * len(states)
    rows = [row for row, state in enumerate(states) if state.params.logprobs is not None]
    if not rows:
        return answers
    chosen = torch.tensor(rows, device=logits.device)
    logprobs = logits[chosen].float().log_softmax(-1)
    own = logprobs.gather(-1, token_ids[chosen][:, None])[:, 0].tolist()
    most = max(states[row].params.logprobs or 0 for row in rows)
    values, tokens = (t.tolist() for t in logprobs.topk(min(most, logprobs.shape[1])))
    for index, row in enumerate(rows):
        count = states[row].params.logprobs or 0
        top = tuple(zip(tokens[index][:count], values[index][:count], strict=True))
        answers[row] = TokenLogprobs(int(token_ids[row]), own[index], top)
    return answers
