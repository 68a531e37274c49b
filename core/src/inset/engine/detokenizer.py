"""Token ids to text, one token at a time, with stop texts found across token borders."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    import tokenizers

__all__ = ["Detokenizer"]

_REPLACEMENT: Final = "\ufffd"
_MOST_TOKENS: Final = 256
"""More tokens are decoded at no step: a model that gives broken bytes alone must not cost more with each of them."""


class Detokenizer:
    """The text of one answer.

    Text that could still become a stop text is held back, so that what has been shown is never taken back.

    Attributes:
        text: What may be shown so far.
        token_ids: All tokens so far.
        stop_reason: The stop text that was found, or None.
    """

    def __init__(
        self,
        tokenizer: tokenizers.Tokenizer,
        *,
        stop: Sequence[str] = (),
        include_stop: bool = False,
        min_tokens: int = 0,
        skip_special_tokens: bool = True,
    ) -> None:
        self._stream = _TextStream(tokenizer, skip_special_tokens=skip_special_tokens)
        self._stop = tuple(stop)
        self._include_stop = include_stop
        self._min_tokens = min_tokens
        self._held = ""
        self.text = ""
        self.token_ids: list[int] = []
        self.stop_reason: str | None = None

    def add(self, token_ids: Sequence[int]) -> bool:
        """Takes further tokens, and returns True when a stop text has ended the answer; later tokens are not taken."""
        for token_id in token_ids:
            self.token_ids.append(token_id)
            self._held += self._stream.step(token_id)
            if len(self.token_ids) > self._min_tokens and self._find_stop():
                return True
        self._release(max((_overlap(self._held, stop) for stop in self._stop), default=0))
        return False

    def finish(self) -> bool:
        """Shows what was held back, and returns True when a stop text in it has ended the answer.

        Incomplete characters at the end become replacement characters, as in whole decoding.
        """
        if self.stop_reason is not None:
            return True
        self._held += self._stream.finish()
        if len(self.token_ids) > self._min_tokens and self._find_stop():
            return True
        self._release(0)
        return False

    def _find_stop(self) -> bool:
        found = [(self._held.find(stop), stop) for stop in self._stop]
        first = min(((position, stop) for position, stop in found if position >= 0), default=None)
        if first is None:
            return False
        position, self.stop_reason = first
        self.text += self._held[: position + len(self.stop_reason) if self._include_stop else position]
        self._held = ""
        return True

    def _release(self, num_held: int) -> None:
        cut = len(self._held) - num_held
        self.text, self._held = self.text + self._held[:cut], self._held[cut:]


class _TextStream:
    """Text of tokens as they come, without what could still turn out to be part of a longer character.

    The pieces together are the whole decoding of all tokens, with one exception, which a stream cannot avoid. Tokenizers with byte tokens
    (``<0x0A>``) decode a run of them that is no UTF-8 to one replacement character per byte, whole characters at its beginning included.
    What has been given of such a run stays as it is, and only the rest of it becomes replacement characters. Bytes that are part of no
    character are given after `_MOST_TOKENS` tokens, whatever may follow.
    """

    def __init__(self, tokenizer: tokenizers.Tokenizer, *, skip_special_tokens: bool) -> None:
        self._tokenizer = tokenizer
        self._skip_special_tokens = skip_special_tokens
        self._given: list[int] = []  # the last tokens whose text was given: how a token is decoded depends on what stands before it
        self._given_text = ""
        self._waiting: list[int] = []

    def step(self, token_id: int) -> str:
        """Takes the next token, and returns the text that is certain by now, often none."""
        self._waiting.append(token_id)
        text = self._decode_waiting()
        if (not text or text.endswith(_REPLACEMENT)) and len(self._waiting) < _MOST_TOKENS:
            return ""
        alone = self._decode(self._waiting)
        self._given = self._waiting if alone else [*self._given, *self._waiting][-_MOST_TOKENS:]
        self._given_text = alone or self._decode(self._given)
        self._waiting = []
        return text

    def finish(self) -> str:
        """Returns the text of the tokens that were waiting; incomplete characters become replacement characters."""
        text = self._decode_waiting()
        self._waiting = []
        return text

    def _decode_waiting(self) -> str:
        whole = self._decode([*self._given, *self._waiting])
        return whole[len(self._given_text) :] if whole.startswith(self._given_text) else self._decode(self._waiting)

    def _decode(self, token_ids: list[int]) -> str:
        return self._tokenizer.decode(token_ids, skip_special_tokens=self._skip_special_tokens)


def _overlap(text: str, stop: str) -> int:
    """Returns the length of the longest end of a text that a stop text begins with, shorter than the stop text itself."""
    return next((size for size in range(min(len(text), len(stop) - 1), 0, -1) if text.endswith(stop[:size])), 0)
