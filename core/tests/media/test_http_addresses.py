"""The address that is checked is the address that is dialled."""

from __future__ import annotations

import socket
from typing import Any

import pytest

from inset.config import MediaConfig
from inset.errors import MediaFetchError, MediaPolicyError
from inset.media.fetcher import MediaFetcher
from inset.media.http import HttpConnector
from inset.media.look_ups import AddressInfo, Resolve, look_up
from inset.testing.media_io import EncodedBytesIO
from inset.testing.media_server import MediaServer

PICTURE = b"\x89PNG" + bytes(range(256)) * 100


def make_fetcher(resolve: Resolve = look_up, **options: Any) -> MediaFetcher:
    return MediaFetcher([HttpConnector()], MediaConfig(**{"allow_private_media_hosts": ("127.0.0.1",), **options}), resolve=resolve)


def resolve_to(*addresses: str) -> Resolve:
    """Returns a resolver that gives another address each time it is asked; the last one again and again."""
    left = list(addresses)

    def resolve(host: str, port: int) -> list[AddressInfo]:
        address = left.pop(0) if len(left) > 1 else left[0]
        family = socket.AF_INET6 if ":" in address else socket.AF_INET
        return [(family, socket.SOCK_STREAM, socket.IPPROTO_TCP, "", (address, port))]

    return resolve


def resolve_to_all(*addresses: str) -> Resolve:
    def resolve(host: str, port: int) -> list[AddressInfo]:
        return [info for address in addresses for info in resolve_to(address)(host, port)]

    return resolve


@pytest.mark.parametrize(
    "host", ["localhost", "LOCALHOST.", "127.0.0.1", "[::1]", "[::ffff:7f00:1]", "\uff11\uff12\uff17.0.0.1", "0.0.0.0"]
)
def test_loopback_is_refused_in_every_spelling_by_default(media_server: MediaServer, host: str) -> None:
    media_server.serve("/private", PICTURE)
    with make_fetcher(allow_private_media_hosts=()) as fetcher, pytest.raises(MediaPolicyError):
        fetcher.fetch_image(f"http://{host}:{media_server.port}/private", EncodedBytesIO())
    assert media_server.requests == []


@pytest.mark.parametrize("address", ["127.0.0.1", "10.1.2.3", "169.254.169.254", "::1", "::ffff:127.0.0.1", "64:ff9b::7f00:1", "0.0.0.0"])
def test_name_that_leads_to_a_private_address_is_refused(media_server: MediaServer, address: str) -> None:
    with make_fetcher(resolve_to(address)) as fetcher, pytest.raises(MediaPolicyError, match="leads to"):
        fetcher.fetch_image(f"http://evil.example:{media_server.port}/", EncodedBytesIO())
    assert media_server.requests == []


def test_several_private_addresses_are_refused_as_one(media_server: MediaServer) -> None:
    with make_fetcher(resolve_to_all("127.0.0.1", "::1", "10.0.0.1")) as fetcher, pytest.raises(MediaPolicyError, match="leads to"):
        fetcher.fetch_image(f"http://evil.example:{media_server.port}/", EncodedBytesIO())
    assert media_server.requests == []


def test_name_that_is_public_first_and_private_second_is_refused(media_server: MediaServer) -> None:
    """DNS rebinding: the first, public address cannot be reached from the tests, so a second look-up follows."""
    with make_fetcher(resolve_to("93.184.215.14", "127.0.0.1")) as fetcher, pytest.raises(MediaPolicyError, match="leads to"):
        fetcher.fetch_image(f"http://evil.example:{media_server.port}/", EncodedBytesIO())
    assert media_server.requests == []


def test_name_in_the_option_may_lead_to_a_private_address(media_server: MediaServer) -> None:
    media_server.serve("/inside", PICTURE)
    with make_fetcher(resolve_to("127.0.0.1"), allow_private_media_hosts=("inside.example",)) as fetcher:
        assert fetcher.fetch_image(f"http://inside.example:{media_server.port}/inside", EncodedBytesIO()).data == PICTURE
        with pytest.raises(MediaPolicyError):
            fetcher.fetch_image(f"http://other.example:{media_server.port}/inside", EncodedBytesIO())
    assert media_server.requests[0].headers["host"] == f"inside.example:{media_server.port}"


def test_kept_connection_of_a_private_host_serves_no_other_host(media_server: MediaServer) -> None:
    url = media_server.serve("/kept", PICTURE)
    with make_fetcher(resolve_to("127.0.0.1")) as fetcher:
        fetcher.fetch_image(url, EncodedBytesIO())
        with pytest.raises(MediaPolicyError):
            fetcher.fetch_image(url.replace("127.0.0.1", "evil.example"), EncodedBytesIO())


def test_host_that_cannot_be_found_is_a_fetch_error() -> None:
    def resolve(host: str, port: int) -> list[AddressInfo]:
        raise socket.gaierror(socket.EAI_NONAME, "unknown")

    with (
        make_fetcher(resolve, max_fetch_attempts=1) as fetcher,
        pytest.raises(MediaFetchError, match=r"the look-up of the host name failed \(unknown\)"),
    ):
        fetcher.fetch_image("http://nowhere.example/?secret", EncodedBytesIO())
