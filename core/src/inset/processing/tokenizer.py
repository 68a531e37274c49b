"""Text to token ids and back, from a checkpoint's own files; neither torch nor transformers is imported."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from functools import cached_property
from typing import TYPE_CHECKING, Any, Final, NamedTuple, Self

from inset.errors import ConfigError
from inset.processing.token_reach import TokenReach

if TYPE_CHECKING:
    import tokenizers

    from inset.checkpoint import Checkpoint

__all__ = ["SpecialTokensAround", "Tokenizer"]

_SHORT_TEXT: Final = 256


class SpecialTokensAround(NamedTuple):
    """What the tokenizer itself puts around a prompt.

    Attributes:
        prefix: Token ids before the text, such as the begin-of-text token.
        suffix: Token ids behind it.
    """

    prefix: tuple[int, ...]
    suffix: tuple[int, ...]


class Tokenizer:
    """A checkpoint's tokenizer. Immutable once built, and safe to use from several threads.

    It holds two instances of the same tokenizer: one that knows the added tokens, for prompts, and one whose added tokens are emptied,
    for text that must stay text. Switching one instance to and fro is not safe with two threads.

    Attributes:
        eos_token_ids: Tokens that end an answer, sorted.
    """

    def __init__(self, tokenizer_json: str, *, eos_token_ids: Sequence[int] = (), named_tokens: Mapping[str, str] | None = None) -> None:
        self._full = _build(tokenizer_json)
        self._plain = _build(_without_added_tokens(tokenizer_json))
        self._added = {token.content: token_id for token_id, token in self._full.get_added_tokens_decoder().items()}
        self._added_ids = frozenset(self._added.values())
        spec = json.loads(tokenizer_json)
        self._unknown_id = _unknown_id(spec["model"], self._full)
        self._reach = TokenReach.of(spec)
        self._named = dict(named_tokens or {})
        self.eos_token_ids = tuple(sorted(set(eos_token_ids)))

    @classmethod
    def from_checkpoint(cls, checkpoint: Checkpoint) -> Self:
        """Reads ``tokenizer.json`` and the configs that name special tokens.

        Raises:
            ConfigError: There is no tokenizer.json, or it cannot be read.
        """
        path = checkpoint.folder / "tokenizer.json"
        if not path.is_file():
            raise ConfigError(f"The checkpoint {checkpoint.folder.name!r} has no tokenizer.json; save its tokenizer in the fast format.")
        named = _named_tokens(checkpoint.tokenizer_config)
        tokenizer = cls(path.read_text("utf-8"), named_tokens=named)
        tokenizer.eos_token_ids = tuple(sorted(_eos_token_ids(checkpoint, tokenizer)))
        return tokenizer

    @property
    def backend(self) -> tokenizers.Tokenizer:
        """The instance that knows the added tokens, for decoding streams; nobody may change it."""
        return self._full

    @property
    def vocab_size(self) -> int:
        """Number of tokens, added ones included."""
        return int(self._full.get_vocab_size(with_added_tokens=True))

    @property
    def added_tokens(self) -> Mapping[str, int]:
        """Text -> token id of the tokens that are found in text as a whole, special or not."""
        return dict(self._added)

    @property
    def unknown_token_id(self) -> int | None:
        """The token that stands for what the vocabulary cannot spell, or None where it can spell everything."""
        return self._unknown_id

    @property
    def named_tokens(self) -> Mapping[str, str]:
        """Role -> text of the special tokens that the tokenizer config names, such as ``bos_token``; chat templates read them."""
        return dict(self._named)

    @cached_property
    def special_tokens_around(self) -> SpecialTokensAround:
        """What ``encode(..., add_special_tokens=True)`` puts before and behind a text."""
        inner = self.encode("a")
        outer = self.encode("a", add_special_tokens=True)
        for start in range(len(outer) - len(inner) + 1):
            if outer[start : start + len(inner)] == inner:
                return SpecialTokensAround(tuple(outer[:start]), tuple(outer[start + len(inner) :]))
        raise ConfigError("The tokenizer changes a text when it adds special tokens around it; that is not supported.")

    def encode(self, text: str, add_special_tokens: bool = False) -> list[int]:
        """Returns the token ids of a prompt; text that looks like an added token becomes that token.

        Use `encode_as_text` for text that somebody else wrote.
        """
        return _encode(self._full, text, add_special_tokens=add_special_tokens)

    def least_num_tokens(self, text: str) -> int:
        """Returns a number of tokens that a text has at least, without tokenising it; 0 where this tokenizer allows no bound."""
        return 0 if self._reach is None else self._reach.least_num_tokens(text)

    def encode_as_text(self, text: str) -> list[int]:
        """Returns the token ids of a text in which nothing is an added token."""
        return _encode(self._plain, text, add_special_tokens=False)

    def decode(self, token_ids: Sequence[int], skip_special_tokens: bool = True) -> str:
        """Returns the text of token ids; incomplete characters at the end show as U+FFFD."""
        return str(self._full.decode(list(token_ids), skip_special_tokens=skip_special_tokens))

    def token_to_id(self, token: str) -> int | None:
        """Returns the id of one token, or None where there is no such token."""
        token_id = self._full.token_to_id(token)
        return None if token_id is None else int(token_id)

    def id_to_token(self, token_id: int) -> str | None:
        """Returns the token of an id as the vocabulary spells it, or None where there is no such id."""
        token = self._full.id_to_token(token_id)
        return None if token is None else str(token)

    def added_ids_in(self, token_ids: Iterable[int]) -> list[int]:
        """Returns those ids that are added tokens, in order."""
        return [token_id for token_id in token_ids if token_id in self._added_ids]


def _encode(tokenizer: tokenizers.Tokenizer, text: str, *, add_special_tokens: bool) -> list[int]:
    """Returns token ids. Only the call for batches lets other threads run meanwhile; it counts no offsets, and is three times as fast."""
    text = _encodable(text)
    if len(text) < _SHORT_TEXT:
        return list(tokenizer.encode(text, add_special_tokens=add_special_tokens).ids)
    return list(tokenizer.encode_batch_fast([text], add_special_tokens=add_special_tokens)[0].ids)


def _build(text: str) -> tokenizers.Tokenizer:
    import tokenizers

    try:
        tokenizer = tokenizers.Tokenizer.from_str(text)
    except Exception as error:  # the library raises bare Exception
        raise ConfigError(f"tokenizer.json cannot be read: {error}") from error
    tokenizer.no_padding()
    tokenizer.no_truncation()
    return tokenizer


def _without_added_tokens(text: str) -> str:
    try:
        return json.dumps({**json.loads(text), "added_tokens": []})
    except (ValueError, TypeError) as error:
        raise ConfigError(f"tokenizer.json cannot be read: {error}") from error


def _unknown_id(model: Mapping[str, Any], tokenizer: tokenizers.Tokenizer) -> int | None:
    if isinstance(model.get("unk_id"), int):
        return int(model["unk_id"])
    token = model.get("unk_token")
    token_id = tokenizer.token_to_id(token) if isinstance(token, str) else None
    return None if token_id is None else int(token_id)


def _encodable(text: str) -> str:
    """Replaces lone surrogates, which JSON can carry and UTF-8 cannot."""
    return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")


def _named_tokens(config: Mapping[str, Any]) -> dict[str, str]:
    named = {}
    for name, value in config.items():
        if not name.endswith("_token"):
            continue
        content = value.get("content") if isinstance(value, Mapping) else value
        if isinstance(content, str):
            named[name] = content
    return named


def _eos_token_ids(checkpoint: Checkpoint, tokenizer: Tokenizer) -> set[int]:
    declared = checkpoint.generation_config.get("eos_token_id")
    if declared is None:
        text_config = checkpoint.config.get("text_config") or {}
        declared = checkpoint.config.get("eos_token_id", text_config.get("eos_token_id"))
    ids = {declared} if isinstance(declared, int) else set(declared or ())
    named = tokenizer.named_tokens.get("eos_token")
    named_id = None if named is None else tokenizer.token_to_id(named)
    return ids if named_id is None else ids | {named_id}
