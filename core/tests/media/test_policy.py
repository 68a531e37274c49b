from __future__ import annotations

from typing import Any

import pytest

from inset.config import MediaConfig
from inset.errors import ConfigError, MediaPolicyError
from inset.media.policy import MediaPolicy, find_refusal
from inset.media.url import MediaUrl

PRIVATE = [
    "127.0.0.1",
    "127.255.255.254",
    "10.0.0.1",
    "172.16.0.1",
    "192.168.1.1",
    "100.64.0.1",
    "169.254.1.1",
    "192.0.2.1",
    "198.18.0.1",
    "::1",
    "fd00::1",
    "fe80::1",
    "fe80::1%eth0",
    "fec0::1",
    "2001:db8::1",
    "64:ff9b:1::808:808",
    "::ffff:127.0.0.1",
    "::ffff:10.0.0.1",
    "::ffff:0:7f00:1",
    "::7f00:1",
    "64:ff9b::7f00:1",
    "64:ff9b::a00:1",
    "2002:7f00:1::",
    "2002:a00:1::1",
    "2001:0:5db8:d822:0:0:80ff:fffe",
    "2606:4700::5efe:7f00:1",
    "2606:4700::200:5efe:a00:1",
]
NEVER = [
    "0.0.0.0",
    "::",
    "224.0.0.1",
    "ff02::1",
    "240.0.0.1",
    "255.255.255.255",
    "169.254.169.254",
    "169.254.170.2",
    "168.63.129.16",
    "192.0.0.192",
    "100.100.100.200",
    "fd00:ec2::254",
    "::ffff:169.254.169.254",
    "64:ff9b::a9fe:a9fe",
    "2001:0:a9fe:a9fe::1",
    "2002:a9fe:a9fe::1",
]
PUBLIC = ["8.8.8.8", "93.184.215.14", "2606:4700::1111", "::ffff:8.8.8.8", "64:ff9b::808:808", "2002:808:808::1"]


@pytest.mark.parametrize("address", PRIVATE)
def test_private_address_is_refused_unless_its_host_is_named(address: str) -> None:
    assert find_refusal(address) is not None
    assert find_refusal(address, may_be_private=True) is None


@pytest.mark.parametrize("address", NEVER)
def test_multicast_reserved_and_metadata_addresses_are_always_refused(address: str) -> None:
    assert find_refusal(address) is not None
    assert find_refusal(address, may_be_private=True) is not None


@pytest.mark.parametrize("address", PUBLIC)
def test_public_address_passes(address: str) -> None:
    assert find_refusal(address) is None


@pytest.mark.parametrize("host", ["example.com", "EXAMPLE.com", "example.com."])
def test_allowed_host_passes_in_any_spelling(host: str) -> None:
    MediaPolicy(MediaConfig(allowed_media_domains=("Example.COM",))).check_host(MediaUrl.parse(f"https://{host}:8443/x"))


@pytest.mark.parametrize(
    "url",
    [
        "http://evil.example/",
        "http://sub.example.com/",
        "http://example.com.evil.example/",
        "http://notexample.com/",
        "http://evil.example/?example.com",
        "http://evil.example#example.com",
        "s3://evil.example/key",
    ],
)
def test_host_that_is_not_allowed_is_refused_for_every_scheme(url: str) -> None:
    with pytest.raises(MediaPolicyError, match="--allowed-media-domains"):
        MediaPolicy(MediaConfig(allowed_media_domains=("example.com",))).check_host(MediaUrl.parse(url))


@pytest.mark.parametrize("url", ["ark:anchor", "ARK:anchor", "ark:///anchor", "ark:", "zip+ark:anchor", "arks:anchor"])
def test_url_without_a_host_passes_no_host_list_that_does_not_name_its_scheme(url: str) -> None:
    with pytest.raises(MediaPolicyError, match=r"names no host, and the operator's --allowed-media-domains"):
        MediaPolicy(MediaConfig(allowed_media_domains=("example.com",))).check_host(MediaUrl.parse(url))
    policy = MediaPolicy(MediaConfig(allowed_media_domains=("Ark:", "zip+*:", "arks:")))
    policy.check_host(MediaUrl.parse(url))
    with pytest.raises(MediaPolicyError, match="is not allowed"):
        policy.check_host(MediaUrl.parse("ark://evil.example/anchor"))
    MediaPolicy(MediaConfig()).check_host(MediaUrl.parse(url))


@pytest.mark.parametrize("url", ["data:image/png;base64,AA", "file:///media/a.png", "file://localhost/media/a.png"])
def test_url_that_leads_nowhere_else_passes_the_host_list(url: str) -> None:
    MediaPolicy(MediaConfig(allowed_media_domains=("example.com",))).check_host(MediaUrl.parse(url))


def test_literal_address_is_refused_before_a_socket_is_made() -> None:
    policy = MediaPolicy(MediaConfig(allow_private_media_hosts=("127.0.0.1", "::1")))
    policy.check_literal(MediaUrl.parse("http://127.0.0.1/"))
    policy.check_literal(MediaUrl.parse("http://[0:0::1]/"))
    policy.check_literal(MediaUrl.parse("http://localhost/"))  # a name: known when it is dialled
    with pytest.raises(MediaPolicyError, match="private"):
        policy.check_literal(MediaUrl.parse("http://10.0.0.1/"))


@pytest.mark.parametrize("option", ["allowed_media_domains", "allow_private_media_hosts"])
@pytest.mark.parametrize("host", ["http://example.com", "example.com/path", "a b", ""])
def test_option_that_is_no_host_is_refused_at_start(option: str, host: str) -> None:
    options: dict[str, Any] = {option: (host,)}
    with pytest.raises(ConfigError, match=option.replace("_", "-")):
        MediaPolicy(MediaConfig(**options))
