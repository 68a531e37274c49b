"""How the next token is chosen and when an answer ends."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sized
from dataclasses import dataclass, field
from numbers import Real
from operator import index
from typing import Final, TypeVar

from inset.errors import InvalidRequestError

__all__ = ["SamplingParams"]

S = TypeVar("S", bound=Sized)

_INTEGERS: Final = ("n", "top_k", "seed", "max_tokens", "min_tokens", "logprobs")
_OPTIONAL: Final = ("seed", "max_tokens", "logprobs")
_NUMBERS: Final = ("temperature", "top_p", "min_p", "presence_penalty", "frequency_penalty", "repetition_penalty")
_SURROGATE: Final = re.compile("[\ud800-\udfff]")
_SWITCHES: Final = ("include_stop_str_in_output", "ignore_eos", "skip_special_tokens")
_MOST: Final = {"stop": 128, "stop_token_ids": 16_384, "logit_bias": 16_384}
"""These options are looked through for every token and travel with every answer: without bounds one request would slow down all others."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SamplingParams:
    """Options of one request; the names are those of vLLM's offline API.

    Raises:
        InvalidRequestError: A value is of another type, or out of range; the option is named.

    Attributes:
        n: How many answers.
        temperature: 0 is greedy.
        top_p: Keep the most likely tokens whose probabilities sum up to this, in (0, 1].
        top_k: Keep this many of the most likely tokens; 0 or -1 keeps all.
        min_p: Keep tokens at least this fraction as likely as the most likely one, in [0, 1].
        presence_penalty: Taken off the logit of each token that the answer holds already, in [-2, 2].
        frequency_penalty: The same, times how often it holds it, in [-2, 2].
        repetition_penalty: Divides positive and multiplies negative logits of tokens in prompt or answer, in [0.01, 100]; 1 changes
            nothing.
        logit_bias: Token id -> what is added to its logit, in [-100, 100]; at most 16,384.
        seed: Makes sampling repeatable; None draws one from the engine's own.
        stop: Texts that end the answer; at most 128.
        stop_token_ids: Tokens that end the answer; at most 16,384.
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
        """Brings every value into its plain form: integers, numbers and texts of any library arrive as Python's own."""
        for name in _INTEGERS:
            self._put(name, _integer(name, getattr(self, name)))
        for name in _NUMBERS:
            self._put(name, _number(name, getattr(self, name)))
        for name in _SWITCHES:
            if not isinstance(getattr(self, name), bool):
                raise _refuse(name, f"must be true or false, not {getattr(self, name)!r}")
        stop: object = self.stop
        self._put("stop", (stop,) if isinstance(stop, str) else _listed("stop", stop))
        self._put(
            "stop_token_ids", tuple(_integer("stop_token_ids", token_id) for token_id in _listed("stop_token_ids", self.stop_token_ids))
        )
        if not isinstance(self.logit_bias, Mapping | None):
            raise _refuse("logit_bias", "must be a mapping of token ids to numbers")
        biases = _bounded("logit_bias", self.logit_bias or {}).items()
        self._put("logit_bias", {_integer("logit_bias", token_id): _number("logit_bias", bias) for token_id, bias in biases})
        self._check_ranges()

    def _check_ranges(self) -> None:
        for name, holds, rule in (
            ("n", 1 <= self.n <= 128, "must be in 1 to 128"),
            ("temperature", 0 <= self.temperature <= 10, "must be in 0 to 10"),
            ("top_p", 0 < self.top_p <= 1, "must be above 0 and at most 1"),
            ("top_k", self.top_k >= -1, "must be -1 or more"),
            ("min_p", 0 <= self.min_p <= 1, "must be in 0 to 1"),
            ("presence_penalty", -2 <= self.presence_penalty <= 2, "must be in -2 to 2"),
            ("frequency_penalty", -2 <= self.frequency_penalty <= 2, "must be in -2 to 2"),
            ("repetition_penalty", 0.01 <= self.repetition_penalty <= 100, "must be in 0.01 to 100"),
            ("max_tokens", self.max_tokens is None or self.max_tokens >= 1, "must be 1 or more"),
            ("min_tokens", 0 <= self.min_tokens <= (self.max_tokens or self.min_tokens), "must be in 0 to max_tokens"),
            ("logprobs", self.logprobs is None or 0 <= self.logprobs <= 20, "must be in 0 to 20"),
        ):
            if not holds:
                raise _refuse(name, f"{rule}, not {getattr(self, name)}")
        if not all(-100 <= bias <= 100 for bias in self.logit_bias.values()):
            raise _refuse("logit_bias", "must be in -100 to 100")
        for name, token_ids in (("logit_bias", self.logit_bias), ("stop_token_ids", self.stop_token_ids)):
            if any(token_id < 0 for token_id in token_ids):
                raise _refuse(name, "must name tokens by their ids")
        if not all(isinstance(text, str) and text and not _SURROGATE.search(text) for text in self.stop):
            raise _refuse("stop", "must hold texts that are not empty")

    def _put(self, name: str, value: object) -> None:
        object.__setattr__(self, name, value)

    @property
    def is_greedy(self) -> bool:
        """The most likely token is always chosen."""
        return self.temperature == 0


def _integer(name: str, value: object) -> int | None:
    if value is None and name in _OPTIONAL:
        return None
    try:
        number = index(value)  # type: ignore[arg-type]
    except TypeError:
        raise _refuse(name, f"must be an integer, not {value!r}") from None
    if not -(2**63) <= number < 2**64:
        raise _refuse(name, "must be an integer of at most 64 bits")
    return number


def _number(name: str, value: object) -> float:
    if not isinstance(value, Real):
        raise _refuse(name, f"must be a number, not {value!r}")
    return float(value)


def _listed(name: str, value: object) -> tuple[object, ...]:
    """Returns the values of a list; None is an empty one."""
    if value is None:
        return ()
    if isinstance(value, str | bytes) or not isinstance(value, Iterable):
        raise _refuse(name, f"must be a list, not {value!r}")
    return _bounded(name, tuple(value))


def _bounded(name: str, value: S) -> S:
    """Returns a value that holds no more than it may; called before anything goes through it."""
    if len(value) > _MOST[name]:
        raise _refuse(name, f"must hold at most {_MOST[name]}, not {len(value)}")
    return value


def _refuse(name: str, rule: str) -> InvalidRequestError:
    return InvalidRequestError(f"{name} {rule}.", parameter=name)
