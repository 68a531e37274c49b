"""Tokenises a rendered chat so that nothing a user typed becomes one of the model's own tokens."""

from __future__ import annotations

import re
import secrets
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Final, NamedTuple, Protocol

from inset.errors import InvalidRequestError

if TYPE_CHECKING:
    from inset.processing.tokenizer import SpecialTokensAround

__all__ = ["ChatTokenizer", "EncodedChat", "encode_chat"]

_INERT: Final = "word"
_NONCE_BYTES: Final = 12


class EncodedChat(NamedTuple):
    """A chat as the model reads it.

    Attributes:
        text: The rendered prompt.
        token_ids: Its token ids; every added token among them was written by the chat template.
    """

    text: str
    token_ids: list[int]


class ChatTokenizer(Protocol):
    """What tokenising a chat needs of a tokenizer; see `inset.processing.tokenizer.Tokenizer`."""

    @property
    def special_tokens_around(self) -> SpecialTokensAround:
        """What the tokenizer puts around a prompt."""

    @property
    def unknown_token_id(self) -> int | None:
        """The token of text that the vocabulary cannot spell, or None."""

    def encode(self, text: str, add_special_tokens: bool = False) -> list[int]:
        """Returns token ids; text that looks like an added token becomes that token."""

    def encode_as_text(self, text: str) -> list[int]:
        """Returns token ids among which none is an added token."""

    def added_ids_in(self, token_ids: Iterable[int]) -> list[int]:
        """Returns those ids that are added tokens, in order."""


def encode_chat(
    tokenizer: ChatTokenizer,
    render: Callable[[Sequence[str]], str],
    *,
    user_strings: Sequence[str],
    check_text: Callable[[str], None] = lambda text: None,
    add_special_tokens: bool = False,
) -> EncodedChat:
    """Renders a chat and returns its token ids, in which user text stays text.

    The rendered prompt is tokenised as a whole, and its added tokens are compared with those of the same chat with inert words. Only where
    they differ are the user's pieces tokenised on their own, as text: isolating pieces always would change the tokens of ordinary chats.

    Args:
        tokenizer: The checkpoint's tokenizer.
        render: Renders the chat with these strings in place of the user's, in the same order. Markers that the server itself places
            belong to the rendering, not to the strings.
        user_strings: Every string of the chat except roles and part types.
        check_text: Is given the rendered text before it is tokenised, and raises where it is too long.
        add_special_tokens: Also put what the tokenizer itself puts around a prompt.

    Raises:
        InvalidRequestError: User text looks like one of the model's tokens, and the chat template cuts or changes user text so that it
            cannot be kept apart.
    """
    text = render(user_strings)
    check_text(text)
    token_ids = tokenizer.encode(text)
    inert = tokenizer.encode(render([_INERT if string.strip() else string for string in user_strings]))
    expected = tokenizer.added_ids_in(inert)
    if tokenizer.added_ids_in(token_ids) != expected:
        token_ids = _encode_apart(tokenizer, render, user_strings)
        # What the vocabulary cannot spell becomes the unknown token, in plain text too.
        unknown = tokenizer.unknown_token_id
        found = [token_id for token_id in tokenizer.added_ids_in(token_ids) if token_id != unknown]
        if found != [token_id for token_id in expected if token_id != unknown]:
            raise InvalidRequestError(
                "A message contains text that looks like one of the model's own tokens, in a place where the chat template cuts or changes "
                "it. Write that text differently.",
                stage="parse",
            )
    if add_special_tokens:
        around = tokenizer.special_tokens_around
        token_ids = [*around.prefix, *token_ids, *around.suffix]
    return EncodedChat(text, token_ids)


def _encode_apart(tokenizer: ChatTokenizer, render: Callable[[Sequence[str]], str], user_strings: Sequence[str]) -> list[int]:
    nonce = secrets.token_hex(_NONCE_BYTES)
    text = render([_enclose(string, nonce) for string in user_strings])
    token_ids: list[int] = []
    depth = 0
    for piece in re.split(f"(x{nonce}y|y{nonce}x)", text):
        if piece.startswith(f"x{nonce}"):
            depth += 1
        elif piece.startswith(f"y{nonce}"):
            depth -= 1
        elif piece:
            token_ids += tokenizer.encode_as_text(piece) if depth else tokenizer.encode(piece)
    return token_ids


def _enclose(string: str, nonce: str) -> str:
    """Puts nonces of plain letters and digits around a string, inside its outer white space: templates strip that."""
    core = string.strip()
    if not core:
        return string
    start = string.index(core)
    return f"{string[:start]}x{nonce}y{core}y{nonce}x{string[start + len(core) :]}"
