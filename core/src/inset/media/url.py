"""The one parse of a media URL: its text is checked first, and the normal form is what is allowed and what is dialled."""

from __future__ import annotations

import ipaddress
import re
from dataclasses import dataclass
from typing import Final
from urllib.parse import quote, urljoin

from inset.errors import MediaPolicyError

__all__ = ["HTTP_SCHEMES", "MediaUrl", "normalize_host"]

HTTP_SCHEMES: Final = ("http", "https")

MAX_URL_CHARACTERS: Final = 16_384
"""Longest URL that is not a data: URL; signed URLs stay well under it."""

_SCHEME = re.compile(r"([A-Za-z][A-Za-z0-9+.-]{0,31}):")
_FORBIDDEN = re.compile(r"[\x00-\x1f\x7f-\x9f\\\ud800-\udfff]")
_HOST = re.compile(r"[a-z0-9_]([a-z0-9_-]*[a-z0-9_])?(\.[a-z0-9_]([a-z0-9_-]*[a-z0-9_])?)*")
_NUMERIC_END = re.compile(r"(^|\.)(0x[0-9a-f]*|[0-9]+)$")
_PORT = re.compile(r"[0-9]{1,5}")

# What quote() leaves alone: all that may stand in a path, query or fragment, and percent signs, so that signatures keep their spelling.
_SAFE = "!#$%&'()*+,/:;=?@[]~"


@dataclass(frozen=True, slots=True, repr=False)
class MediaUrl:
    """A media URL in its one normal form.

    Attributes:
        scheme: Lower case, without the colon.
        host: Lower case, in ASCII, without a trailing dot or brackets; None where the URL names no host.
        port: From 1 to 65535; None where the URL names none.
        text: The URL to connect with. It may carry secrets: never put it into a message; `where` is for that.
    """

    scheme: str
    host: str | None
    port: int | None
    text: str

    @classmethod
    def parse(cls, text: str) -> MediaUrl:
        """Checks the text and returns its normal form.

        Raises:
            MediaPolicyError: The URL has user-info, a control character, a back-slash, a bad host or port, or no scheme.
        """
        match = _SCHEME.match(text)
        if match is None:
            raise MediaPolicyError("The media URL has no scheme: give a data:, http: or https: URL.", stage="fetch")
        scheme = match[1].lower()
        if scheme == "data":
            # Not copied and not scanned here: it can hold hundreds of megabytes, and its connector checks every letter.
            return cls(scheme, None, None, text)
        _check_text(text)
        rest = text[match.end() :]
        if not rest.startswith("//"):
            if scheme in HTTP_SCHEMES:
                raise MediaPolicyError(f"The {scheme}: URL names no host.", stage="fetch")
            return cls(scheme, None, None, f"{scheme}:{quote(rest, safe=_SAFE)}")
        authority, path = _split_authority(rest[2:])
        host, port = _parse_authority(scheme, authority)
        if scheme == "file" and host == "localhost" and port is None:
            host = None  # two spellings of this machine
        if path and path[0] != "/":
            path = "/" + path
        shown = "" if host is None else f"[{host}]" if ":" in host else host
        shown += "" if port is None else f":{port}"
        return cls(scheme, host, port, f"{scheme}://{shown}{quote(path.partition('#')[0], safe=_SAFE)}")

    def join(self, location: str) -> MediaUrl:
        """Returns where a redirect leads, which may be relative to this URL.

        Raises:
            MediaPolicyError: As for `parse`.
        """
        _check_text(location)
        try:
            return MediaUrl.parse(urljoin(self.text, location))
        except ValueError as error:  # urljoin's, for brackets that hold no address
            raise MediaPolicyError("The host of the media URL is not valid.", stage="fetch") from error

    @property
    def where(self) -> str:
        """Scheme and host: all of a URL that a message or a log line may show."""
        return self.scheme if self.host is None else f"{self.scheme}://{self.host}"

    def __repr__(self) -> str:
        return f"<MediaUrl {self.where}>"

    __str__ = __repr__


def _check_text(text: str) -> None:
    if len(text) > MAX_URL_CHARACTERS:
        raise MediaPolicyError(f"The media URL has {len(text)} characters, over the limit of {MAX_URL_CHARACTERS}.", stage="fetch")
    # Before any library sees it: some strip a tab or a new line from a host, or read a back-slash as a slash, without a word.
    if _FORBIDDEN.search(text):
        raise MediaPolicyError("The media URL holds a control character or a back-slash; percent-encode it.", stage="fetch")


def _split_authority(rest: str) -> tuple[str, str]:
    end = min((index for index in (rest.find(mark) for mark in "/?#") if index >= 0), default=len(rest))
    return rest[:end], rest[end:]


def _parse_authority(scheme: str, authority: str) -> tuple[str | None, int | None]:
    if "@" in authority:
        raise MediaPolicyError("The media URL carries a user name or password, which is not allowed.", stage="fetch")
    if authority.startswith("["):
        literal, bracket, tail = authority[1:].partition("]")
        if not bracket or (tail and not tail.startswith(":")):
            raise MediaPolicyError("The host of the media URL is not valid.", stage="fetch")
        return normalize_host(f"[{literal}]"), _parse_port(tail[1:]) if tail else None
    name, colon, port = authority.partition(":")
    if not name:
        if scheme in HTTP_SCHEMES or colon:
            raise MediaPolicyError(f"The {scheme}: URL names no host.", stage="fetch")
        return None, None
    host = normalize_host(name)
    if scheme in HTTP_SCHEMES:
        _refuse_odd_number(host)
    return host, _parse_port(port) if colon else None


def _parse_port(text: str) -> int:
    if not _PORT.fullmatch(text) or not 0 < int(text) < 65_536:
        raise MediaPolicyError("The port of the media URL is not a number from 1 to 65535.", stage="fetch")
    return int(text)


def _refuse_odd_number(host: str) -> None:
    """Refuses addresses in decimal, octal, hexadecimal or short form, which a resolver would read as numbers."""
    if _NUMERIC_END.search(host) is None:
        return
    try:
        ipaddress.IPv4Address(host)
    except ValueError as error:
        message = "The host of the media URL is a number in an unusual spelling: write four decimal numbers, or a name."
        raise MediaPolicyError(message, stage="fetch") from error


def normalize_host(host: str) -> str:
    """Returns the one form of a host name or literal address: lower case, ASCII, no trailing dot, no brackets.

    Raises:
        MediaPolicyError: It is not a host name or address.
    """
    try:
        if host.startswith("["):
            if "%" in host:  # A zone chooses an interface of this machine.
                raise ValueError("zone")
            return str(ipaddress.IPv6Address(host.removeprefix("[").removesuffix("]")))
        name = host if host.isascii() else _to_ascii(host)
    except ValueError as error:
        raise MediaPolicyError("The host of the media URL is not valid.", stage="fetch") from error
    name = name.lower().removesuffix(".")
    if len(name) > 253 or not _HOST.fullmatch(name) or any(len(label) > 63 for label in name.split(".")):
        raise MediaPolicyError("The host of the media URL is not valid.", stage="fetch")
    return name


def _to_ascii(host: str) -> str:
    import idna

    return idna.encode(host, uts46=True).decode("ascii")
