"""Token ids to text, one token at a time, with stop texts found across token borders."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from tokenizers.decoders import DecodeStream

if TYPE_CHECKING:
    import tokenizers

__all__ = ["Detokenizer"]


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
        self._tokenizer = tokenizer
        self._stream = DecodeStream(skip_special_tokens=skip_special_tokens)
        self._skip_special_tokens = skip_special_tokens
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
            self._held += self._stream.step(self._tokenizer, token_id) or ""
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
        whole = self._tokenizer.decode(self.token_ids, skip_special_tokens=self._skip_special_tokens)
        if whole.startswith(self.text + self._held):
            self._held = whole[len(self.text) :]
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


def _overlap(text: str, stop: str) -> int:
    """Returns the length of the longest end of a text that a stop text begins with, shorter than the stop text itself."""
    return next((size for size in range(min(len(text), len(stop) - 1), 0, -1) if text.endswith(stop[:size])), 0)
