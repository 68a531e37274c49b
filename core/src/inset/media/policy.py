"""Where media may come from: allowed hosts, and the addresses that no host may lead to."""

from __future__ import annotations

import ipaddress
from collections.abc import Iterator, Sequence
from ipaddress import IPv4Address, IPv6Address, IPv6Network
from typing import Final

from inset.config import MediaConfig
from inset.errors import ConfigError, MediaPolicyError
from inset.media.url import MediaUrl, normalize_host
from inset.registry import is_scheme

__all__ = ["MediaPolicy", "find_refusal"]

_METADATA: Final = frozenset(
    ipaddress.ip_address(address)
    for address in (
        "169.254.169.254",
        "169.254.170.2",
        "169.254.170.23",
        "168.63.129.16",
        "192.0.0.192",
        "100.100.100.200",
        "fd00:ec2::254",
        "fd00:ec2::23",
        "fd20:ce::254",
    )
)
"""Where clouds answer questions about the machine and its credentials; refused even for hosts that may be private."""

_CARRIES_IPV4: Final = (
    IPv6Network("::/96"),  # compatible
    IPv6Network("::ffff:0:0/96"),  # mapped
    IPv6Network("::ffff:0:0:0/96"),  # translated
    IPv6Network("64:ff9b::/96"),  # NAT64
)
_LOCAL_NAT64: Final = IPv6Network("64:ff9b:1::/48")
_ISATAP: Final = (0x00005EFE, 0x02005EFE)


_BOUND_OTHERWISE: Final = frozenset({"data", "file"})
"""Schemes without hosts that lead nowhere else: to the URL itself, and to the folder that the operator named."""


class MediaPolicy:
    """The operator's rules, checked before a connection is made and, for addresses, where its socket is made."""

    def __init__(self, config: MediaConfig) -> None:
        names = config.allowed_media_domains
        self._is_limited = bool(names)
        self._allowed_schemes = frozenset(name[:-1].lower() for name in names if _is_scheme_name(name)) | _BOUND_OTHERWISE
        self._allowed_hosts = _normalize_all("allowed_media_domains", [name for name in names if not _is_scheme_name(name)])
        self._private_hosts = _normalize_all("allow_private_media_hosts", config.allow_private_media_hosts)
        self.allow_redirects = config.media_url_allow_redirects

    def check_host(self, url: MediaUrl) -> None:
        """Lets a URL pass whose host is allowed, or which names none and whose scheme is allowed.

        Raises:
            MediaPolicyError: ``--allowed-media-domains`` has neither.
        """
        if not self._is_limited:
            return
        prefix, plus, _ = url.scheme.partition("+")
        if url.host is None and self._allowed_schemes.isdisjoint((url.scheme, f"{prefix}{plus}*")):
            message = (
                f"This {url.scheme}: URL names no host, and the operator's --allowed-media-domains names the hosts that are allowed; "
                f"it can name the scheme, as '{url.scheme}:'."
            )
            raise MediaPolicyError(message, stage="fetch")
        if url.host is not None and url.host not in self._allowed_hosts:
            message = f"The host {url.host!r} is not allowed; the operator's --allowed-media-domains names the hosts that are."
            raise MediaPolicyError(message, stage="fetch")

    def may_be_private(self, host: str | None) -> bool:
        """Tells whether the operator lets this host lead to private addresses."""
        return host in self._private_hosts

    def check_literal(self, url: MediaUrl) -> None:
        """Refuses a host that is itself an address which may not be dialled, before any socket is made.

        Raises:
            MediaPolicyError: The address is private, local, multicast, reserved or a cloud's metadata service.
        """
        try:
            ipaddress.ip_address(url.host or "")
        except ValueError:
            return
        reason = find_refusal(str(url.host), may_be_private=self.may_be_private(url.host))
        if reason is not None:
            raise refused_address(url, reason)


def refused_address(url: MediaUrl, reason: str) -> MediaPolicyError:
    """Returns the error for a host that leads to an address which may not be dialled."""
    message = f"The host {url.host!r} leads to {reason}, which is not allowed; the operator can name it in --allow-private-media-hosts."
    return MediaPolicyError(message, stage="fetch")


def find_refusal(address: str, *, may_be_private: bool = False) -> str | None:
    """Returns why an address may not be dialled, in words, or None when it may.

    IPv4 addresses inside IPv6 ones are looked at too: mapped, translated, compatible, NAT64, 6to4, Teredo, ISATAP.

    Args:
        address: A literal address, as it is about to be dialled; a zone is left out of account.
        may_be_private: The operator named the host: private, loopback and link-local addresses pass.
    """
    parsed = ipaddress.ip_address(address.partition("%")[0])
    for candidate in (parsed, *_embedded(parsed)):
        reason = _refuse(candidate, may_be_private)
        if reason is not None:
            return reason
    return None


def _refuse(address: IPv4Address | IPv6Address, may_be_private: bool) -> str | None:
    if address in _METADATA:
        return "the metadata service of a cloud"
    if address.is_multicast:
        return "a multicast address"
    if address.is_unspecified:
        return "an unspecified address"
    if address.is_loopback:
        return None if may_be_private else "a loopback address"
    if address.is_link_local or (isinstance(address, IPv6Address) and address.is_site_local):
        return None if may_be_private else "a link-local address"
    if isinstance(address, IPv6Address) and any(address in network for network in _CARRIES_IPV4):
        return None  # The IPv4 address inside decides.
    if not may_be_private and (not address.is_global or (isinstance(address, IPv6Address) and address in _LOCAL_NAT64)):
        return "a private address"
    return "a reserved address" if address.is_reserved and address not in _LOCAL_NAT64 else None


def _embedded(address: IPv4Address | IPv6Address) -> Iterator[IPv4Address]:
    if isinstance(address, IPv4Address):
        return
    number = int(address)
    if number > 1 and any(address in network for network in (*_CARRIES_IPV4, _LOCAL_NAT64)):
        yield IPv4Address(number & 0xFFFFFFFF)
    elif address.sixtofour is not None:
        yield address.sixtofour
    elif address.teredo is not None:
        yield from address.teredo
    elif (number >> 32) & 0xFFFFFFFF in _ISATAP:
        yield IPv4Address(number & 0xFFFFFFFF)


def _is_scheme_name(name: str) -> bool:
    return name.endswith(":") and is_scheme(name[:-1].lower())


def _normalize_all(option: str, hosts: Sequence[str]) -> frozenset[str]:
    normal = set()
    for host in hosts:
        try:
            # An address with colons is written without brackets in an option, and with them in a URL.
            normal.add(normalize_host(f"[{host}]" if ":" in host and not host.startswith("[") else host))
        except MediaPolicyError as error:
            raise ConfigError(f"--{option.replace('_', '-')} cannot hold {host!r}: it is not a host name or address.") from error
    return frozenset(normal)
