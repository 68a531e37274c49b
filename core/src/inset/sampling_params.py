"""How the next token is chosen and when an answer ends."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from numbers import Integral, Real
from typing import Final

from inset.errors import InvalidRequestError

__all__ = ["SamplingParams"]

_KINDS: Final[Mapping[str, tuple[type, str]]] = {
    "int": (Integral, "a whole number"),
    "float": (Real, "a number"),
    "bool": (bool, "true or false"),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class SamplingParams:
    """Options of one request; the names are those of vLLM's offline API.

    Attributes:
        n: How many answers.
        temperature: 0 is greedy.
        top_p: Keep the most likely tokens whose probabilities sum up to this, in (0, 1].
        top_k: Keep this many of the most likely tokens; 0 or -1 keeps all.
        min_p: Keep tokens at least this fraction as likely as the most likely one, in [0, 1].
        presence_penalty: Taken off the logit of each token that the answer holds already, in [-2, 2].
        frequency_penalty: The same, times how often it holds it, in [-2, 2].
        repetition_penalty: Divides positive and multiplies negative logits of tokens in prompt or answer; 1 changes nothing.
        logit_bias: Token id -> what is added to its logit, in [-100, 100].
        seed: Makes sampling repeatable; None draws a fresh one.
        stop: Texts that end the answer.
        stop_token_ids: Tokens that end the answer.
        include_stop_str_in_output: Leave the stop text in the answer.
        ignore_eos: Do not end at the checkpoint's end-of-sequence tokens.
        max_tokens: The longest answer, in tokens; None is as long as the context allows.
        min_tokens: No end-of-sequence or stop token before this many tokens.
        logprobs: How many of the most likely tokens' log probabilities to return for each token; None returns none, 0 the chosen one alone.
        skip_special_tokens: Leave special tokens out of the text.
    """

    n: int = 1
    temperature: float = 1.0
    top_p: float = 1.0
    top_k: int = 0
    min_p: float = 0.0
    presence_penalty: float = 0.0
    frequency_penalty: float = 0.0
    repetition_penalty: float = 1.0
    logit_bias: Mapping[int, float] = field(default_factory=dict)
    seed: int | None = None
    stop: tuple[str, ...] = ()
    stop_token_ids: tuple[int, ...] = ()
    include_stop_str_in_output: bool = False
    ignore_eos: bool = False
    max_tokens: int | None = 16
    min_tokens: int = 0
    logprobs: int | None = None
    skip_special_tokens: bool = True

    def __post_init__(self) -> None:
        stop: object = self.stop
        object.__setattr__(self, "stop", (stop,) if isinstance(stop, str) else tuple(self.stop or ()))
        object.__setattr__(self, "stop_token_ids", tuple(self.stop_token_ids or ()))
        object.__setattr__(self, "logit_bias", self.logit_bias or {})
        self._check_kinds()
        for holds, rule in (
            (1 <= self.n <= 128, f"n must be in 1 to 128, not {self.n}"),
            (0 <= self.temperature <= 10, f"temperature must be in 0 to 10, not {self.temperature}"),
            (0 < self.top_p <= 1, f"top_p must be above 0 and at most 1, not {self.top_p}"),
            (self.top_k >= -1, f"top_k must be -1 or more, not {self.top_k}"),
            (0 <= self.min_p <= 1, f"min_p must be in 0 to 1, not {self.min_p}"),
            (-2 <= self.presence_penalty <= 2, f"presence_penalty must be in -2 to 2, not {self.presence_penalty}"),
            (-2 <= self.frequency_penalty <= 2, f"frequency_penalty must be in -2 to 2, not {self.frequency_penalty}"),
            (
                0 < self.repetition_penalty <= 100,
                f"repetition_penalty must be above 0 and at most 100, not {self.repetition_penalty}",
            ),
            (all(map(_is_bias, self.logit_bias.values())), "logit_bias must be in -100 to 100"),
            (all(map(_is_token_id, self.logit_bias)), "logit_bias must name tokens by their ids"),
            (all(isinstance(s, str) and s for s in self.stop), "stop must hold texts that are not empty"),
            (all(map(_is_token_id, self.stop_token_ids)), "stop_token_ids must be ids of tokens"),
            (self.max_tokens is None or self.max_tokens >= 1, f"max_tokens must be 1 or more, not {self.max_tokens}"),
            (
                0 <= self.min_tokens <= (self.max_tokens or self.min_tokens),
                f"min_tokens must be in 0 to max_tokens, not {self.min_tokens}",
            ),
            (self.logprobs is None or 0 <= self.logprobs <= 20, f"logprobs must be in 0 to 20, not {self.logprobs}"),
        ):
            if not holds:
                raise InvalidRequestError(f"{rule}.", parameter=rule.split()[0])

    def _check_kinds(self) -> None:
        for field_ in fields(self):
            kind, *optional = str(field_.type).split(" | ")
            value = getattr(self, field_.name)
            if kind in _KINDS and not (value is None and optional) and not isinstance(value, _KINDS[kind][0]):
                raise InvalidRequestError(f"{field_.name} must be {_KINDS[kind][1]}, not a {type(value).__name__}.", parameter=field_.name)

    @property
    def is_greedy(self) -> bool:
        """The most likely token is always chosen."""
        return self.temperature == 0


def _is_token_id(value: object) -> bool:
    return isinstance(value, Integral) and int(value) >= 0


def _is_bias(value: object) -> bool:
    return isinstance(value, Real) and -100 <= float(value) <= 100
